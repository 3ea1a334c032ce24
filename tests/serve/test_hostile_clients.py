"""S9: Each hostile client is answered within bounds, and an honest one gets the same bytes as ever after it."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hostile_clients import CLIENTS, HOSTILE
from test_serve_socket import Process

import own_loop
from hostile_wire import CLOSED, FINE, LEFT

pytestmark = pytest.mark.xdist_group("serve")
HONEST = {
    "translate": ("/runs/translate/predict", json.dumps({"inputs": ["a b"], "details": True})),
    "language": ("/v1/completions", json.dumps({"model": "language", "prompt": "a", "max_tokens": 4, "seed": 1})),
    "runs": ("/v2/models/translate/infer", json.dumps({"inputs": [{"name": "inputs", "datatype": "BYTES", "shape": [1], "data": ["a b"]}]})),
}  # fmt: skip


@pytest.fixture(scope="module")
def attacked(folder_of):
    kinds = [str(folder_of(kind)) for kind in ("translate", "language", "transcribe")]
    started = Process(*kinds, "--device", "cpu")
    yield started, honest(started)
    assert started.end() == 0
    assert not started.said, started.said[:5]


def honest(started: Process) -> dict[str, object]:
    found = {}
    for name, (path, body) in HONEST.items():
        status, answer = started.ask(path=path, body=body)
        assert status == 200, answer
        content = json.loads(answer)
        found[name] = {key: value for key, value in content.items() if key not in ("id", "created")}
    return found


@pytest.mark.parametrize("name", CLIENTS)
def test_an_honest_client_gets_the_same_answers_after_a_hostile_one(attacked, name):
    started, wanted = attacked
    outcome = own_loop.run(CLIENTS[name](started.port))
    assert set(outcome.split(", ")) <= FINE | {CLOSED, LEFT}, outcome
    assert honest(started) == wanted


def test_every_route_has_three_and_no_idea_more_than_ten(start):
    """A new route fails here until it is attacked in three ways."""
    assert HOSTILE.keys() == {route.path for route in start("classify").app._app.routes}
    assert min(len(clients) for clients in HOSTILE.values()) >= 3
    assert max(Counter(name.partition(":")[0] for name in CLIENTS).values()) <= 10
