"""Who may ask, and how much: hosts, origins, tokens, sizes, and what is no request at all."""

from __future__ import annotations

import asyncio
import json

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serve_runs import HOST, Client

import own_loop
from anaphora.serving.app import create_app
from anaphora.serving.serve import local_names


def test_every_route_but_pages_and_probes_needs_the_token(start):
    one = start("classify", token="a-token-of-16-chars")
    bare = Client(one.app)
    for path in ("/runs", "/v2", "/v2/models/classify", "/metrics", "/openapi.json", "/nothing"):
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Basic a-token-of-16-chars"},
        ):
            answered = bare("GET", path, headers=headers)
            assert (answered.status, answered.headers["www-authenticate"]) == (401, "Bearer")
    assert bare("POST", "/predict", {"inputs": ["a"]}).status == 401
    assert one.client("POST", "/predict", {"inputs": ["a"]}).status == 200
    for path in ("/", "/docs", "/v2/health/live", "/v2/health/ready"):
        assert bare("GET", path).status == 200


def test_a_local_server_answers_to_its_own_names_only(start):
    """S1: a page that has its own name resolved to 127.0.0.1 is refused by its Host."""
    one = start("classify")
    app, _ = create_app(one.runs, names=local_names("127.0.0.1", 8000))
    ask = Client(app)
    for host in (HOST, "localhost:8000", "[::1]:8000"):
        assert ask("GET", "/v2/health/live", headers={"host": host}).status == 200
    for host in ("evil.example", "127.0.0.1.evil:8000", "127.0.0.1:1", "", "127.0.0.1"):
        assert ask("GET", "/v2/health/live", headers={"host": host}).status == 400
    assert local_names("0.0.0.0", 8000) is None


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://{HOST}", "http://127.0.0.1"])
def test_pages_of_others_may_not_ask(start, origin):
    ask = start("classify").client
    assert ask("POST", "/predict", {"inputs": ["a"]}, headers={"origin": origin}).status == 403
    assert ask("POST", "/predict", {"inputs": ["a"]}, headers={"origin": f"http://{HOST}"}).status == 200


@pytest.mark.parametrize(
    "headers", [{"content-length": "2000"}, {"content-length": "9" * 400}, {"content-length": "-1"}]
)
def test_a_body_that_claims_too_much_is_refused_before_it_is_read(start, headers):
    answered = start("classify", body=1000).client("POST", "/predict", b"{", headers=headers)
    assert (answered.status, "1,000 bytes at most" in answered.json()["error"]) == (413, True)


def test_a_body_that_grows_is_refused(start):
    """S3: chunks without an end."""
    app = start("classify", body=1000).app
    got = []

    async def endless():
        async def receive():
            return {"type": "http.request", "body": b"x" * 100, "more_body": True}

        async def send(message):
            got.append(message)

        scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "scheme": "http"}
        headers = [
            (b"host", HOST.encode()),
            (b"content-type", b"application/json"),
            (b"transfer-encoding", b"chunked"),
        ]
        await app({**scope, "headers": headers, "raw_path": b"/predict"}, receive, send)

    own_loop.run(endless())
    assert got[0]["status"] == 413


def test_a_body_that_does_not_arrive_is_refused(start):
    """S4: a byte now and then."""
    app = start("classify", body_seconds=0.1).app
    got = []

    async def slow():
        async def receive():
            await asyncio.sleep(0.03)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message):
            got.append(message)

        scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "scheme": "http"}
        headers = [(b"host", HOST.encode()), (b"content-type", b"application/json")]
        await app({**scope, "headers": headers, "raw_path": b"/predict"}, receive, send)

    own_loop.run(slow())
    assert got[0]["status"] == 408


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"inputs": ["a"], "inputs": ["b"]}', "stands twice"),
        (b'{"inputs": ["\\ud800"]}', "half a character"),
        (b'{"inputs": [1e999]}', "too large"),
        (b'{"inputs": [NaN]}', "NaN"),
        (b"\xff\xfe", "UTF-8"),
        (b'["a"]', "must be a JSON object"),
        (b'{"inputs": ["a"]', "not JSON"),
    ],
)
def test_hostile_json(start, body, text):
    answered = start("classify").client(
        "POST", "/predict", body, headers={"content-type": "application/json"}
    )
    assert answered.status == 400, answered.body
    assert text in answered.json()["error"]


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("translate", {"inputs": ["a"], "beam": 10**6}, "at most 1000"),
        ("translate", {"inputs": ["a"], "beam": 101}, "allows (100)"),
        ("translate", {"inputs": ["a"], "n_best": 10**6}, "at most 1000"),
        ("translate", {"inputs": ["a"], "max_length": 10**9}, "allows (2000)"),
        ("translate", {"inputs": ["a"], "temperature": -1, "decode": "sample"}, "at least 0"),
        ("translate", {"inputs": ["a"], "temperature": 0.5}, 'belongs to decode = "sample"'),
        ("translate", {"inputs": ["a"], "top_p": 2}, "at most 1"),
        ("translate", {"inputs": ["a"], "seed": -1}, "at least 0"),
        ("translate", {"inputs": ["a"], "beam": True}, "whole number"),
        ("translate", {"inputs": ["a"], "search": "os:system"}, "is not an option of requests"),
        ("translate", {"inputs": ["a"], "beem": 3}, "Did you mean beam?"),
        ("translate", {"inputs": ["a"], "details": 1}, "details must be true or false"),
        ("translate", {"inputs": []}, "1 to 256 inputs, not 0"),
        ("translate", {"inputs": ["a"] * 257}, "not 257"),
        ("translate", {"inputs": ["a" * 20_001]}, "symbols, and at most"),
        ("translate", {}, "has no inputs"),
        ("forecast", {"inputs": [[[1, 2]] * 20], "horizon": 10**6}, "allows (2000)"),
        ("transcribe", {"inputs": [[0.0] * 800], "window": 0.001, "overlap": 0}, "at least 1 second"),
        ("transcribe", {"inputs": [[0.0] * 800], "lexicon": "/etc/passwd"}, "leave it out or give train"),
        ("transcribe", {"inputs": [[0.0] * 800], "lexicon": ["train"]}, "is not an option"),
        ("transcribe", {"inputs": [{"samples": [0.1], "rate": 0}]}, "rate"),
        ("transcribe", {"inputs": [{"samples": [0.1], "rate": "8000"}]}, "rate"),
        ("transcribe", {"inputs": [[0.0] * 800_0, "x"]}, "input 2"),
        ("vectors", {"inputs": [[[1, 2], [3]]]}, "equal rows"),
        ("vectors", {"inputs": [[["a", "b"]]]}, "numbers"),
        ("vectors", {"inputs": [[[1, 2, 3]]]}, "features"),
        ("vectors", {"inputs": [[[1e39, 2]]]}, "infinity"),
        ("tag", {"inputs": [[1, 2]]}, "is not a sentence"),
        ("caption", {"inputs": [[[1, 2], [3, 4], [5]]]}, "input 1"),
        ("caption", {"inputs": [{"base64": "!"}]}, "is not base64"),
        ("caption", {"inputs": [{"base64": "aGVsbG8="}]}, "input 1 is not a picture"),
        ("answer", {"inputs": [{"picture": [[1]], "question": ""}]}, "question"),
        ("embed", {"inputs": [3]}, "text"),
    ],
)
def test_what_cannot_be_answered(served, kind, body, text):
    """S5: a sentence with the bounds, before any tensor is made."""
    answered = served(kind).client("POST", "/predict", body)
    assert answered.status == 422, answered.body
    assert text in answered.json()["error"], answered.json()
    assert "\n" not in answered.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/predict", 405),
        ("DELETE", "/v2", 405),
        ("GET", "/../etc/passwd", 404),
        ("GET", "/%2e%2e/etc/passwd", 404),
        ("GET", "/static/page.js", 404),
        ("GET", "/v2/models/..%2f..", 404),
        ("GET", "/v2/models/none", 404),
        ("POST", "/runs/none/predict", 404),
        ("GET", f"/v2?{'x' * 9000}", 414),
    ],
)
def test_no_such_page(start, method, path, status):
    answered = start("classify").client(method, path)
    assert (answered.status, list(answered.json())) == (status, ["error"])


def test_metrics_are_read_by_the_parser_of_prometheus(start):
    ask = start("classify", "embed").client
    ask("POST", "/runs/classify/predict", {"inputs": ["a", "b c"]})
    ask("POST", "/runs/none/predict", {"inputs": ["a"]})
    families = {f.name: f for f in text_string_to_metric_families(ask("GET", "/metrics").body.decode())}
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert found["anaphora_requests_total", "/runs/{name}/predict", "200"] == 1
    assert found["anaphora_requests_total", "/runs/{name}/predict", "404"] == 1
    assert found["anaphora_inputs_total", "classify"] == 2
    assert found["anaphora_tokens_total", "classify"] >= 3
    assert found["anaphora_batch_requests_count", "classify"] == 1
    assert found["anaphora_loaded_runs",] == 2
    assert found["anaphora_request_seconds_count", "/runs/{name}/predict"] == 2
    assert found["anaphora_active_requests",] == 1  # this very one


def test_errors_are_json_with_one_key(start):
    answered = start("classify").client("GET", "/nothing")
    assert json.loads(answered.body) == {"error": "there is no such page; / lists what there is."}
    assert answered.headers["x-content-type-options"] == "nosniff"
