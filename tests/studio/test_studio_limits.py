"""E3: What one look may cost, and that it ends with its page: every route of the studio, which follow from its own table."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.parse
from typing import Any

import pytest

import anaphora as an
import own_loop
from anaphora.cancellation import check_stopped
from anaphora.errors import AnaphoraError
from anaphora.studio import guard as guards
from anaphora.studio import pictures
from anaphora.studio.app import create_app
from anaphora.studio.panels import panels
from anaphora.studio.starting import Starter
from anaphora.studio.worker import Worker

TOKEN = "t" * 32
LONG = "ab " * 40
TYPED = {"/api/picture": "alignment", "/api/save": "alignment", "/api/explain": "", "/api/panel": ""}
"""Routes that compute what a page types, with the view that the test asks for."""
OWN = {
    *("/", "/favicon.ico", "/app.js", "/app.css", "/icon.svg", "/api/about", "/api/lessons", "/api/lesson"),
    *("/api/runs", "/api/views", "/api/able", "/api/example", "/api/compare", "/api/film", "/api/studies"),
    *("/api/study", "/api/watch", "/api/starting", "/api/order", "/api/resuming"),
}
"""Routes that read what there is: bounded in number and time, with nothing typed that is computed."""
WRITES = {"/api/plan", "/api/start", "/api/stop", "/api/resume", "/api/upload"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits") / "runs"
    pairs = [("ab ba"[i % 3 :], "BA AB"[i % 3 :]) for i in range(12)]
    tiny = {"steps": 2, "valid_every": 2, "save_every": 2, "device": "cpu", "hidden": 8, "embedding": 8}
    an.Translator(model="lstm-attention", tokens="char", **tiny).fit(
        pairs, valid=pairs[:2], out=folder / "small"
    )
    return folder


@pytest.fixture
def app(folder):
    return create_app([folder], token=TOKEN, port=lambda: 8000, starter=Starter(folder, allowed=True))


async def ask(
    app: Any, path: str, *, method: str = "GET", leave: asyncio.Event | None = None, **query: str
) -> Any:
    """The status and the JSON of an answer."""
    sent, status, body = False, 0, b""

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent and method == "POST":
            sent = True
            return {"type": "http.request", "body": b"{}", "more_body": False}
        await (leave or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    headers = {"host": "127.0.0.1:8000", "x-anaphora-token": TOKEN, "origin": "http://127.0.0.1:8000"}
    if method == "POST":
        kind = "application/octet-stream" if path.endswith("upload") else "application/json"
        headers |= {"content-type": kind, "content-length": "2"}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "scheme": "http", "root_path": "",
        "query_string": urllib.parse.urlencode(query).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    await app(scope, receive, send)
    return status, json.loads(body) if body else None


def test_every_route_of_the_page_is_bounded_in_one_of_these_ways(app):
    assert {route.path for route in app._app.routes} == TYPED.keys() | OWN | WRITES


@pytest.mark.parametrize("path", TYPED)
def test_a_look_that_costs_too_much_is_refused(app, path, monkeypatch):
    """Explain, steer, intervene, play and pictures, by the symbols of the text."""
    monkeypatch.setattr(pictures, "MOST_COST", 500)

    async def looks() -> list[Any]:
        (run,) = (await ask(app, "/api/runs"))[1]
        words = {"run": run["id"], "text": LONG, "view": TYPED[path], "form": "svg"}
        each = [{**words, "panel": name} for name in panels()] if path == "/api/panel" else [words]
        return [await ask(app, path, **one) for one in each]

    answers = own_loop.run(looks())
    assert len(answers) == (3 if path == "/api/panel" else 1)
    for status, found in answers:
        said = found.get("error") or found["pictures"][0]["error"]
        assert status == 422
        assert "at most 500 are computed at once" in said


def test_steering_costs_as_much_as_its_beam_is_wide(app, monkeypatch):
    async def steered(beam: str) -> Any:
        (run,) = (await ask(app, "/api/runs"))[1]
        given = {"run": run["id"], "panel": "steer", "text": "ab ba", "s.beam": beam}
        return await ask(app, "/api/panel", **given)

    monkeypatch.setattr(pictures, "MOST_COST", 400)
    assert own_loop.run(steered("2"))[0] == 200
    assert own_loop.run(steered("20"))[0] == 422


def steps_until_stopped(begun: threading.Event, ended: threading.Event) -> None:
    begun.set()
    try:
        while True:
            check_stopped()
    finally:
        ended.set()


def test_a_look_ends_when_its_page_has_left(app, monkeypatch):
    """Before its next step."""
    begun, ended = threading.Event(), threading.Event()
    monkeypatch.setattr("anaphora.studio.app.explained", lambda *given: steps_until_stopped(begun, ended))

    async def leave() -> None:
        (run,) = (await ask(app, "/api/runs"))[1]
        gone = asyncio.Event()
        asked = asyncio.ensure_future(ask(app, "/api/explain", leave=gone, run=run["id"], text="ab"))
        await own_loop.until(begun.is_set)
        gone.set()
        await asked
        await own_loop.until(ended.is_set)

    own_loop.run(leave())


def test_a_job_whose_time_is_over_ends_before_its_next_step():
    begun, ended = threading.Event(), threading.Event()
    worker = Worker("test", 0.05)

    async def late() -> None:
        with pytest.raises(AnaphoraError, match="took longer"):
            await worker.do(lambda: steps_until_stopped(begun, ended))
        await own_loop.until(lambda: ended.is_set() or not begun.is_set())
        assert await worker.do(lambda: 3) == 3

    own_loop.run(late())


@pytest.mark.parametrize("path", sorted(WRITES))
def test_few_bodies_are_received_at_the_same_time(app, path, monkeypatch):
    monkeypatch.setattr(guards, "MOST_WRITES", 0)
    status, found = own_loop.run(ask(app, path, method="POST"))
    assert (status, "too much is being sent" in found["error"]) == (503, True)
