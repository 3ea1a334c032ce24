"""Trainings from the page: what may be asked for, what is refused, and that nothing else is written or left running."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

import anaphora as an
from anaphora.studio.orders import read_order, shown
from anaphora.studio.starting import BIGGEST_FILE, Starter
from conftest import Client, Server

pytestmark = pytest.mark.xdist_group("studio")
ORDER = {
    "task": "classify",
    "data": "parity",
    "model": "lstm",
    "name": "first",
    "settings": {"steps": 2, "hidden": 4},
}


@pytest.fixture(scope="module")
def trains(tmp_path_factory):
    """A studio over an empty folder that may train."""
    folder = tmp_path_factory.mktemp("starting") / "runs"
    folder.mkdir()
    server = Server(folder, "--allow-training")
    yield server
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGINT)
        server.process.communicate(timeout=300)


@pytest.fixture
def posting(trains):
    client = Client(trains.port, trains.token)

    def post(path, body, **headers):
        given = {"Content-Type": "application/json", "Origin": f"http://127.0.0.1:{trains.port}", **headers}
        content = body if isinstance(body, bytes) else json.dumps(body)
        status, _, answer = client.get(path, method="POST", body=content, headers=given)
        return status, json.loads(answer)

    return post


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"task": "sing"}, "choose a task"),
        ({"data": "nothing"}, "choose a corpus"),
        ({"data": "../secret.tsv"}, "choose a corpus"),
        ({"data": "waves"}, "choose a corpus"),
        ({"data": "parity:99"}, "variants"),
        ({"data": "../x.tsv", "upload": True}, "a file's name"),
        ({"data": "x.tsv", "upload": True}, "was not dropped"),
        ({"data": "x.sh", "upload": True}, "ends in one of"),
        ({"model": "own.module:Part"}, "not a preset"),
        ({"name": "../away"}, "a run's name"),
        ({"name": ".hidden"}, "a run's name"),
        ({"name": "-o"}, "a run's name"),
        ({"name": "there"}, "already"),
        ({"settings": {"init": "/etc"}}, "cannot be set from the page"),
        ({"settings": {"device": "cuda"}}, "cannot be set from the page"),
        ({"settings": {"steps": "many"}}, "steps"),
        ({"settings": {"steps": [1]}}, "number or a word"),
        ({"settings": ["steps"]}, "names with values"),
        ({"name": 7}, "short text"),
    ],
)
def test_an_order_that_is_not_as_it_must_be_is_refused_in_a_sentence(tmp_path, change, reason):
    (tmp_path / "there").mkdir()
    with pytest.raises(an.AnaphoraError, match=reason):
        read_order({**ORDER, **change}, tmp_path)


def test_the_command_is_the_one_that_would_be_typed(tmp_path):
    runs = tmp_path / "runs"
    order = read_order(ORDER, runs)
    expected = "anaphora train classify parity -o runs/first --model lstm --set hidden=4 --set steps=2"
    assert shown(order.words(runs), runs) == expected


def test_without_the_flag_the_command_is_shown_and_nothing_can_be_changed(client, server, tmp_path):
    words = "task=classify&data=parity&model=lstm&name=first&s.steps=2"
    status, found = client.json(f"/api/order?{words}")
    assert (status, found["command"]) == (
        200,
        "anaphora train classify parity -o runs/first --model lstm --set steps=2",
    )
    status, facts = client.json("/api/starting")
    assert (status, facts["allowed"]) == (200, False)
    listed = {run["name"]: run["id"] for run in client.json("/api/runs")[1]}
    status, found = client.json(f"/api/resuming?run={listed['deep/transformer']}")
    assert (status, found["command"]) == (200, "anaphora resume runs/deep/transformer")
    headers = {"Content-Type": "application/json", "Origin": f"http://127.0.0.1:{server.port}"}
    for path in ("plan", "start", "stop", "resume", "upload"):
        assert client.get(f"/api/{path}", method="POST", body="{}", headers=headers)[0] == 405
    with pytest.raises(an.AnaphoraError, match="--allow-training"):
        Starter(tmp_path, allowed=False).start(ORDER)


def test_requests_that_change_something_come_from_the_page_alone(trains, posting):
    client = Client(trains.port, trains.token)
    body, own = json.dumps(ORDER), f"http://127.0.0.1:{trains.port}"
    kind = {"Content-Type": "application/json"}

    def status(**more):
        return client.get("/api/start", method="POST", body=body, **more)[0]

    assert status(headers=kind) == 403  # no Origin
    assert status(headers={**kind, "Origin": "http://evil.example"}) == 403
    assert status(headers={**kind, "Origin": own}, token=False) == 401
    assert status(headers={"Content-Type": "text/plain", "Origin": own}) == 415
    assert client.get("/api/runs", method="POST", body=body, headers={**kind, "Origin": own})[0] == 405
    large = {"Content-Type": "application/octet-stream", "Content-Length": str(BIGGEST_FILE + 1)}
    assert client.get("/api/upload?name=a.tsv", method="POST", headers={**large, "Origin": own})[0] == 413
    assert posting("/api/start", b"{")[0] == 422
    assert posting("/api/start", [1])[0] == 422
    assert client.json("/api/starting")[1]["trainings"] == []


def test_a_file_is_kept_below_the_runs_and_never_replaced(trains, posting):
    rows = b"good\tyes\nbad\tno\n" * 30
    kind = {"Content-Type": "application/octet-stream"}
    assert posting("/api/upload?name=mine.tsv", rows, **kind) == (200, {"files": ["mine.tsv"]})
    assert "already" in posting("/api/upload?name=mine.tsv", b"x", **kind)[1]["error"]
    for name in ("..%2Fx.tsv", "%2Fx.tsv", ".x.tsv", "x.py", "a%00.tsv", "x" * 120 + ".tsv"):
        assert posting(f"/api/upload?name={name}", b"x", **kind)[0] == 422
    assert (trains.folder / ".uploads" / "mine.tsv").read_bytes() == rows
    assert sorted(os.listdir(trains.folder.parent)) == ["runs"]
    assert sorted(os.listdir(trains.folder)) == [".uploads"]


LONG = {**ORDER, "name": "long", "settings": {"steps": 100_000, "hidden": 4}}


def until(client, happened):
    for _ in range(3000):
        if happened():
            return
        time.sleep(0.1)
    raise AssertionError(client.json("/api/starting"))


def facts(client, name="long"):
    return next(one for one in client.json("/api/starting")[1]["trainings"] if one["run"] == name)


@pytest.mark.slow
def test_a_run_is_planned_stopped_and_resumed(trains, posting):
    client = Client(trains.port, trains.token)
    order = {**LONG, "name": "stopped"}
    status, planned = posting("/api/plan", order)
    assert status == 200, planned
    assert planned["plan"]["settings"]["steps"] == 100_000
    assert planned["command"].endswith("--dry-run")
    assert not (trains.folder / "stopped").exists()
    assert posting("/api/start", order)[0] == 200
    until(client, (trains.folder / "stopped" / "metrics.jsonl").is_file)
    assert posting("/api/stop", {"run": "stopped"})[1]["state"] in ("stopping", "ended")
    until(client, lambda: facts(client, "stopped")["state"] == "ended")
    assert facts(client, "stopped")["code"] == 143  # it saved, and can go on
    listed = {run["name"]: run["id"] for run in client.json("/api/runs")[1]}
    status, resumed = posting("/api/resume", {"run": listed["stopped"]})
    assert (status, resumed["command"]) == (200, "anaphora resume runs/stopped")
    posting("/api/stop", {"run": "stopped"})
    until(client, lambda: facts(client, "stopped")["state"] == "ended")


def test_one_run_trains_at_a_time_and_is_saved_when_the_studio_ends(trains, posting):
    client = Client(trains.port, trains.token)
    status, begun = posting("/api/start", LONG)
    assert (status, begun["state"]) == (200, "training")
    status, refused = posting("/api/start", {**LONG, "name": "second"})
    assert (status, "is being trained" in refused["error"]) == (422, True)
    until(client, (trains.folder / "long" / "metrics.jsonl").is_file)
    trains.process.send_signal(signal.SIGTERM)  # E8; the other signals take the same way
    trains.process.communicate(timeout=300)
    assert trains.process.returncode == 0
    assert not (trains.folder / "long" / "lock").exists()
    assert an.load(trains.folder / "long").predict(["0110"])  # it has its weights
    assert sorted(os.listdir(trains.folder.parent)) == ["runs"]
