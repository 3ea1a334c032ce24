"""S9: Each hostile client of the studio is answered within bounds, and the page gets the same answers as ever after it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import own_loop
from anaphora.studio.app import create_app
from anaphora.studio.starting import Starter
from conftest import Client, Server
from hostile_wire import (
    CLOSED,
    FINE,
    LEFT,
    anywhere,
    asks,
    crowd,
    head,
    leaves,
    raw,
    sends,
)

pytestmark = pytest.mark.xdist_group("studio")
READ = (
    *("/", "/favicon.ico", "/app.js", "/app.css", "/icon.svg", "/api/about", "/api/runs", "/api/views", "/api/picture"),
    *("/api/explain", "/api/able", "/api/panel", "/api/example", "/api/compare", "/api/film", "/api/studies", "/api/study"),
    *("/api/save", "/api/watch", "/api/lessons", "/api/lesson", "/api/starting", "/api/order", "/api/resuming"),
)  # fmt: skip
WRITTEN = ("/api/plan", "/api/start", "/api/stop", "/api/resume", "/api/upload")


def clients(token: str, run: str) -> dict[str, dict[str, Any]]:
    """By route: what is sent there, with the token of this start and the id of a run."""
    mine = f"X-Anaphora-Token: {token}"
    both = [("GET", path) for path in READ] + [("POST", path) for path in WRITTEN]
    found = {route[1]: made for route, made in anywhere(both, 3, mine).items()}

    def posts(path: str, body: bytes, kind: str = "application/json") -> Any:
        async def client(port: int) -> str:
            return await sends("POST", path, body, kind, mine, f"Origin: http://127.0.0.1:{port}")(port)

        return client

    def looks(path: str) -> Any:
        return asks(f"GET {path}", mine)

    deep = json.dumps([{"kind": "Clamp", "value": 1e308}] * 800)
    special = {
        "/api/runs": {
            "token: one of a megabyte": asks("GET /api/runs", "X-Anaphora-Token: " + "t" * 1_000_000),
            "token: in the address": asks(f"GET /api/runs?token={token}"),
            "token: twice, once right": asks("GET /api/runs", mine, "X-Anaphora-Token: wrong"),
            "token: with letters of another alphabet": raw(
                lambda port: head(port, "GET /api/runs", "X-Anaphora-Token: \xff\xfe")
            ),
        },
        "/api/picture": {
            "look: a view of a hundred names": looks(f"/api/picture?run={run}&view=" + "alignment," * 100),
            "look: a width of 2**70": looks(f"/api/picture?run={run}&view=curves&w={1 << 70}"),
            "look: gone before the picture": crowd(
                leaves(lambda port: head(port, f"GET /api/picture?run={run}&view=alignment&text=abc", mine)), 20
            ),
        },
        "/api/explain": {"look: markup and marks": looks(f"/api/explain?run={run}&text=" + "%F3%A0%81%81<svg/onload=a>" * 200)},
        "/api/panel": {"look: changes without an end": looks(f"/api/panel?run={run}&panel=intervene&text=ab&s.do=" + deep.replace(" ", "").replace(chr(34), "%22"))},
        "/api/film": {"look: a frame before the first": looks(f"/api/film?run={run}&frame=-99999999999999999999")},
        "/api/compare": {"look: one run a thousand times": looks("/api/compare?view=curves&" + "&".join([f"run={run}"] * 1000))},
        "/api/watch": {"watch: a crowd that leaves": crowd(leaves(lambda port: head(port, "GET /api/watch", mine), 50), 60)},
        "/api/upload": {
            "upload: an archive that names its parents": posts("/api/upload?name=..%2f..%2fa.csv", b"PK\3\4" + b"../" * 9000, "application/octet-stream"),
            "upload: a name of devices": posts("/api/upload?name=CON.csv%00.txt", b"a,b\n", "application/octet-stream"),
        },
        "/api/start": {
            "order: settings in settings": posts("/api/start", b'{"task": "classify", "settings": ' + b'{"a":' * 90 + b"1" + b"}" * 90 + b"}"),
            "order: a task of lists": posts("/api/start", b'{"task": [[]], "data": {}, "model": 1e999, "name": null}'),
        },
        "/api/stop": {"order: to end what never began": posts("/api/stop", b'{"run": "../../../proc/1"}')},
        "/api/resume": {"order: a run by a link's name": posts("/api/resume", b'{"run": ".studio/./../runs"}')},
    }  # fmt: skip
    for path, more in special.items():
        found[path].update(more)
    return found


NAMES = [name for made in clients("", "").values() for name in made]


@pytest.fixture(scope="module")
def attacked(runs) -> Iterator[tuple[Server, dict[str, Any], Any]]:
    started = Server(runs, "--allow-training")
    asked = Client(started.port, started.token)
    listed = answer_of(asked, "/api/runs")
    run = listed[0]["id"]
    ways = {name: client for made in clients(started.token, run).values() for name, client in made.items()}
    yield started, ways, [listed, *honest(asked, run)]
    started.stop()


def honest(asked: Client, run: str) -> list[Any]:
    return [answer_of(asked, path) for path in ("/api/views", f"/api/able?run={run}", "/api/starting")]


def answer_of(asked: Client, path: str) -> Any:
    """The answer, once looks of pages that are gone have made room."""
    while (answered := asked.json(path))[0] == 503:
        pass
    assert answered[0] == 200, answered
    return answered[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_gets_the_same_answers_after_a_hostile_client(attacked, name):
    started, ways, wanted = attacked
    outcome = own_loop.run(ways[name](started.port))
    assert set(outcome.split(", ")) <= FINE | {CLOSED, LEFT}, outcome
    asked = Client(started.port, started.token)
    found = answer_of(asked, "/api/runs")
    assert [found, *honest(asked, found[0]["id"])] == wanted


def test_every_route_has_three_and_no_idea_more_than_ten(tmp_path):
    """A new route fails here until it is attacked in three ways."""
    app = create_app([tmp_path], token="t", port=lambda: 1, starter=Starter(tmp_path, allowed=True))
    found = clients("", "")
    assert found.keys() == {route.path for route in app._app.routes}
    assert min(map(len, found.values())) >= 3
    assert max(Counter(name.partition(":")[0] for name in NAMES).values()) <= 10
