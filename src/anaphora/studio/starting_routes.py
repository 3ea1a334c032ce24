"""The requests with which a page starts, stops and resumes trainings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anaphora.errors import DataError
from anaphora.files import parse_json
from anaphora.studio.orders import SETTINGS
from anaphora.studio.runs import Runs
from anaphora.studio.starting import Starter
from anaphora.studio.worker import Worker

Work = Callable[[Callable[[], Any], Worker], Awaitable[Response]]


class StartingRoutes:
    """``work`` does a job in a worker and turns what it returns, or its sentence, into an answer."""

    def __init__(self, starter: Starter, runs: Runs, work: Work):
        self._starter, self._runs, self._work = starter, runs, work
        self._worker = Worker("starting", 50.0)

    def routes(self) -> list[Route]:
        return [
            Route("/api/starting", self.starting),
            Route("/api/order", self.order),
            Route("/api/resuming", self.resuming),
            Route("/api/plan", self.plan, methods=["POST"]),
            Route("/api/start", self.start, methods=["POST"]),
            Route("/api/stop", self.stop, methods=["POST"]),
            Route("/api/resume", self.resume, methods=["POST"]),
            Route("/api/upload", self.upload, methods=["POST"]),
        ]

    async def starting(self, request: Request) -> Response:
        return await self._work(self._starter.facts, self._worker)

    async def order(self, request: Request) -> Response:
        """The command of an order; asking for it changes nothing."""
        query = dict(request.query_params)
        given: dict[str, Any] = {key: query.get(key, "") for key in ("task", "data", "model", "name")}
        given["upload"] = query.get("upload") == "true"
        given["settings"] = {key: query[f"s.{key}"] for key in SETTINGS if f"s.{key}" in query}
        return await self._work(lambda: self._starter.command(given), self._worker)

    async def resuming(self, request: Request) -> Response:
        """The command that goes on with a run."""
        key = request.query_params.get("run", "")
        return await self._work(lambda: self._starter.resuming(self._runs.get(key)), self._worker)

    async def plan(self, request: Request) -> Response:
        body = await request.body()
        return await self._work(lambda: self._starter.plan(_read(body)), self._worker)

    async def start(self, request: Request) -> Response:
        body = await request.body()
        return await self._work(lambda: self._starter.start(_read(body)), self._worker)

    async def stop(self, request: Request) -> Response:
        body = await request.body()
        return await self._work(lambda: self._starter.stop(str(_read(body).get("run", ""))), self._worker)

    async def resume(self, request: Request) -> Response:
        body = await request.body()
        return await self._work(
            lambda: self._starter.resume(self._runs.get(str(_read(body).get("run", "")))), self._worker
        )

    async def upload(self, request: Request) -> Response:
        name, body = request.query_params.get("name", ""), await request.body()
        return await self._work(lambda: self._starter.keep(name, body), self._worker)


def _read(body: bytes) -> dict[str, Any]:
    try:
        found = parse_json(body)
    except ValueError:
        raise DataError("the request is not JSON.") from None
    if not isinstance(found, dict):
        raise DataError("the request must be an object.")
    return found
