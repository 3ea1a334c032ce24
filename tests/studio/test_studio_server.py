"""The studio's server: what it tells, whom it refuses, and what it survives."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.parse

import pytest
from studio_names import BAD_NAME, TEXT

pytestmark = pytest.mark.xdist_group("studio")


def test_runs_are_listed_with_their_standing(client, ids):
    assert set(ids) == {"attentive", BAD_NAME, "deep/transformer", "language", "markov", "kalman", "vectors"}
    _, found = client.json("/api/runs")
    run = next(run for run in found if run["name"] == "attentive")
    assert (run["task"], run["model"], run["step"], run["trained"]) == (
        "translate",
        "lstm-attention",
        40,
        True,
    )
    assert not run["training"]
    assert "loss" in run["measures"]
    assert "/" not in run["id"]


@pytest.mark.parametrize("view", ["curves", "samples", "health"])
def test_training_views_of_several_runs(client, ids, view):
    status, found = client.picture(view, [ids["attentive"], ids[BAD_NAME]])
    assert status == 200
    (picture,) = found["pictures"]
    assert picture["shapes"]
    assert picture["reading"]


@pytest.mark.parametrize("view", ["alignment", "states", "gates", "beam"])
def test_probe_views_equal_the_trace(client, ids, runs, view):
    import anaphora as an
    from anaphora.views.registry import picture as draw

    status, found = client.picture(view, [ids["attentive"]], text=TEXT)
    assert status == 200, found
    trace = an.load(runs / "attentive").probe(TEXT)
    expected = [dict(s.data)["v"] for s in draw(trace, view).chart.scene().shapes if getattr(s, "data", ())]
    assert [s["data"]["v"] for s in found["pictures"][0]["shapes"] if "data" in s] == expected
    assert "an.load" in found["pictures"][0]["code"]


def test_a_dev_example_of_the_run_is_named_by_its_number(client, ids):
    """The third sequence of `runs` has four steps."""
    status, found = client.picture("states", [ids["vectors"]], text="#3")
    assert status == 200, found
    cells = [s["data"]["t"] for s in found["pictures"][0]["shapes"] if "data" in s]
    assert any("← 4:" in cell for cell in cells)
    assert not any("← 5:" in cell for cell in cells)
    status, found = client.picture("states", [ids["vectors"]], text="#4")
    assert (status, found["error"]) == (422, "the run has dev examples #1 to #3; there is no #4.")
    status, found = client.picture("states", [ids["vectors"]], text="/etc/passwd")
    assert (status, "not numbers" in found["error"]) == (422, True)


def test_what_a_model_cannot_show_is_said(client, ids):
    status, found = client.picture("alignment", [ids[BAD_NAME]], text=TEXT)
    assert status == 422
    assert "has no attention" in found["error"]
    _, found = client.picture("states", [ids[BAD_NAME]], text=TEXT)
    assert {"alignment", "heads", "positions", "ctc", "hmm", "kalman"} <= set(found["missing"])
    status, found = client.picture("alignment", [ids["attentive"], ids[BAD_NAME]], text=TEXT)
    assert status == 200
    assert ["error" in picture for picture in found["pictures"]] == [False, True]


@pytest.mark.parametrize(
    ("form", "start"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("csv", b"output"), ("html", b"<!doctype")]
)
def test_pictures_are_saved_in_every_form(client, ids, form, start):
    status, headers, body = client.get(
        f"/api/save?view=alignment&run={ids['attentive']}&text={TEXT}&form={form}"
    )
    assert status == 200
    assert body.startswith(start)
    assert headers["content-disposition"] == "attachment"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil", "", "[::1]", "127.0.0.1:1", "localhost"])
def test_foreign_hosts_are_refused(client, host):
    """S1: the Host header must name this machine."""
    status, _, body = client.get("/", headers={"Host": host})
    assert status == 400
    assert b"127.0.0.1 only" in body or b"Invalid" in body or b"host" in body.lower()


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1"])
def test_foreign_origins_are_refused(client, origin):
    """S1: pages of others may not ask."""
    assert client.get("/api/runs", headers={"Origin": origin})[0] == 403


def test_a_foreign_origin_is_not_hidden_by_a_second_one(client):
    own = f"http://127.0.0.1:{client.port}"
    for pair in (("http://evil.example", own), (own, "http://evil.example")):
        lines = "".join(f"Origin: {origin}\r\n" for origin in pair)
        head = (
            f"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nX-Anaphora-Token: {client.token}\r\n"
        )
        with socket.create_connection(("127.0.0.1", client.port), timeout=120) as asking:
            asking.sendall(f"{head}{lines}Connection: close\r\n\r\n".encode())
            assert b" 403 " in asking.recv(4096).split(b"\r\n")[0]


@pytest.mark.parametrize("number", ["9" * 5000, "²", "-1", "1e3", "٣", ""])
def test_a_number_of_no_picture_is_refused(client, ids, number):
    query = urllib.parse.urlencode(
        {"view": "curves", "run": ids["attentive"], "form": "svg", "number": number}
    )
    status, found = client.json(f"/api/save?{query}")
    assert (status, found["error"]) == (422, "there is no such picture.")


def test_its_own_page_may_ask(client):
    assert client.get("/api/runs", headers={"Origin": f"http://127.0.0.1:{client.port}"})[0] == 200
    assert client.get("/api/runs", headers={"Host": f"localhost:{client.port}"})[0] == 200


def test_the_token_is_needed_for_everything_but_the_page(client):
    """S1: who has not the token gets nothing."""
    for path in (
        "/api/runs",
        "/api/picture",
        "/api/views",
        "/api/save",
        "/api/watch",
        "/api/about",
        "/api/none",
    ):
        assert client.get(path, token=False)[0] == 401
        assert client.get(path, token=False, headers={"X-Anaphora-Token": "x" * 32})[0] == 401
    assert client.get("/", token=False)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_can_only_be_read(client, method):
    assert client.get("/api/runs", method=method)[0] == 405


def test_bodies_are_refused(client):
    """S3: no request has a body."""
    assert client.get("/api/runs", body=b"x" * 10)[0] == 413
    assert client.get("/api/runs", headers={"Content-Length": str(10**9)})[0] == 413


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/%252e%252e/x",
        "/..\\..\\x",
        "//etc/passwd",
        "/app.js/../../serve.py",
        "/app.js%00.css",
        "/static/app.js",
        "/C:/x",
        "/" + "a" * 5000,
    ],
)
def test_there_are_no_other_files(client, path):
    """S2: no path leads to a file."""
    status, _, body = client.get(path)
    assert status in (400, 404)
    assert b"root:" not in body


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"view": "none"}, "There is no view"),
        ({"view": "alignment", "text": ""}, "type a text"),
        ({"view": "alignment", "text": "x" * 20_001}, "longer than"),
        ({"view": "alignment", "text": "abc", "p.beam": "1000000"}, "from 1 to 100"),
        ({"view": "alignment", "text": "abc", "p.beam": "nan"}, "from 1 to 100"),
        ({"view": "alignment", "text": "abc", "o.layer": "-1"}, "layers 1 to"),
        ({"view": "states", "text": "abc", "o.units": "1000000"}, "from 1 to 256"),
        ({"view": "states", "text": "abc", "o.__class__": "1"}, "no option"),
        ({"view": "states", "text": "abc", "o.side": "x" * 300}, "too long"),
        ({"view": "beam", "text": "abc", "o.steps": "true"}, "must be a whole number"),
        ({"view": "states", "text": "abc", "o.units": "many"}, "must be a whole number"),
        ({"view": "beam", "text": "abc", "o.pruned": "3"}, "must be true or false"),
        ({"view": "curves", "o.x": "hours"}, "x must be one of"),
    ],
)
def test_parameters_are_bounded_before_anything_is_computed(client, ids, words, told):
    """S5: bounds are told."""
    view = words.pop("view")
    status, found = client.picture(view, [ids["deep/transformer"]], **words)
    assert status == 422
    assert told in found["error"]
    assert "\n" not in found["error"]


def test_ids_that_are_none(client):
    for run in ("../../etc", "0" * 16, "", "%00"):
        status, found = client.picture("curves", [run])
        assert status == 422
        assert "no such run" in found["error"]
    assert client.picture("curves", [])[0] == 422
    assert client.picture("curves", ["0" * 16] * 20)[0] == 422


def test_every_answer_forbids_what_it_does_not_need(client):
    for path in ("/", "/app.js", "/api/runs", "/nothing"):
        _, headers, _ = client.get(path)
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_a_slow_client_is_let_go(server):
    """S4: a request has a deadline."""
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.settimeout(120)  # far more than the deadline
        begun = time.monotonic()
        slow.sendall(b"GET / HTTP/1.1\r\nHost: 127.0")
        assert slow.recv(100) == b""  # closed without an answer
        assert time.monotonic() - begun > 5


def test_malformed_requests_do_no_harm(server, client):
    """S9: no 500, and the server goes on."""
    for raw in (
        b"\x00\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"A" * 100_000 + b"\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as odd:
            odd.settimeout(120)
            try:
                odd.sendall(raw)
                odd.recv(1000)
            except ConnectionError:
                pass
    assert client.get("/")[0] == 200


def test_many_at_once_are_answered_or_asked_to_wait(client, ids):
    """S6: a bounded queue."""
    found = []

    def ask(number):
        status, _ = client.picture(
            "states", [ids["attentive"]], text=f"{TEXT}{'abcdef'[number % 6] * (number % 9)}"
        )
        found.append(status)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) <= {200, 503}
    assert found.count(200) >= 10
    assert client.get("/")[0] == 200


def test_the_stream_tells_of_growing_journals(client, ids, runs):
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=120)
    connection.request("GET", "/api/watch", headers={"X-Anaphora-Token": client.token})
    answer = connection.getresponse()
    assert answer.read1(200).startswith(b"event: ready")
    journal = runs / "attentive" / "metrics.jsonl"
    before = journal.read_bytes()
    try:
        with journal.open("ab") as file:
            file.write(json.dumps({"step": 41, "loss": 1.0}).encode() + b"\n")
        heard = b""
        while ids["attentive"].encode() not in heard:  # signs of life and other runs may come before it
            piece = answer.read1(400)
            assert piece, heard
            heard += piece
    finally:
        journal.write_bytes(before)
        connection.close()
    assert b"event: changed" in heard


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    """S2: a link leads nowhere."""
    from anaphora.studio.runs import Runs

    inside, outside = tmp_path / "inside", tmp_path / "outside"
    outside.mkdir()
    (outside / "config.json").write_text('{"task": "translate"}')
    (inside / "real").mkdir(parents=True)
    (inside / "real" / "config.json").write_text('{"task": "translate"}')
    (inside / "linked").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    assert [run.name for run in Runs([inside]).all()] == ["real"]


@pytest.mark.parametrize(
    "line",
    ["null", "[]", '{"dev": 3, "step": 1}', '{"dev": {"a": "b"}, "step": "x"}', '"dev"' + "[" * 20_000],
)
def test_a_run_with_nonsense_in_its_journal_is_listed(tmp_path, line):
    from anaphora.studio.runs import Runs

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text('{"task": "translate", "settings": 3}')
    (tmp_path / "run" / "metrics.jsonl").write_text(f"{line}\n")
    (run,) = Runs([tmp_path]).all()
    facts = run.facts()
    assert (facts["measures"], facts["step"]) == ({}, None)


def test_the_bundle_is_the_one_that_the_sources_give():
    """The bundle names the hash of what it was built from; after a change in page/, `make page` builds it again."""
    import hashlib
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    page, static = root / "page", root / "src/anaphora/studio/static"
    digest = hashlib.sha256()
    names = sorted(f"src/{path.name}" for path in (page / "src").iterdir())
    for name in [*names, "build.mjs", "package-lock.json"]:
        digest.update(f"{name}\n".encode() + (page / name).read_bytes() + b"\n")
    assert (static / "app.js").read_text().startswith(f"// built from {digest.hexdigest()}")
    for name in ("index.html", "app.css", "icon.svg"):
        assert (static / name).read_bytes() == (page / "src" / name).read_bytes()


def test_the_bundle_is_small():
    import gzip
    from pathlib import Path

    static = Path(__file__).resolve().parents[2] / "src/anaphora/studio/static"
    assert sum(len(gzip.compress(path.read_bytes())) for path in static.iterdir()) < 250_000
