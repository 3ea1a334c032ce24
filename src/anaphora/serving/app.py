"""The application: all routes over the loaded runs, behind the guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from anaphora.errors import AnaphoraError
from anaphora.serving import completions, health, listening, openapi, pages, predicting
from anaphora.serving.guard import GONE, Guard, as_refusal
from anaphora.serving.limits import Limits
from anaphora.serving.metrics import Metrics
from anaphora.serving.protocol import routes as protocol
from anaphora.serving.refusals import Refusal
from anaphora.serving.runs import Runs
from anaphora.web.answers import Left, Scope, shortened


@dataclass
class Server:
    """What every section of routes is given."""

    runs: Runs
    limits: Limits
    metrics: Metrics
    endings: list[Callable[[], Any]] = field(default_factory=list)
    """Called when the server ends, after the last request."""
    guard: Guard | None = None

    @property
    def ready(self) -> bool:
        """Whether new requests are answered."""
        return self.guard is not None and not self.guard.draining and not any(one.stuck for one in self.runs)


Section = Callable[[Server], list[BaseRoute]]
SECTIONS: list[Section] = [
    health.routes,
    predicting.routes,
    protocol.routes,
    completions.routes,
    listening.routes,
    openapi.routes,
    pages.routes,
]
"""Everything that is served; each adds its routes."""


def create_app(
    runs: Runs, *, token: str | None = None, names: frozenset[str] | None = None
) -> tuple[Guard, Server]:
    """The guarded application over ``runs``, and what its routes share."""
    server = Server(runs, runs.limits, runs.metrics)
    routes = [route for section in SECTIONS for route in section(server)]
    paths = {getattr(route, "endpoint", None): getattr(route, "path", "other") for route in routes}

    def route_of(scope: Scope) -> str:
        return str(paths.get(scope.get("endpoint"), "other"))

    handlers: dict[Any, Any] = {HTTPException: _plain_refusal, Left: _gone, ClientDisconnect: _gone}
    handlers |= dict.fromkeys((Refusal, AnaphoraError, Exception), _refusal)
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    server.guard = Guard(
        app, limits=runs.limits, metrics=runs.metrics, token=token, names=names, route_of=route_of
    )
    return server.guard, server


async def _plain_refusal(request: Request, error: Exception) -> Response:
    """What starlette itself refuses, in a sentence."""
    assert isinstance(error, HTTPException)
    sentences = {
        404: "there is no such page; / lists what there is.",
        405: f"{request.method} is not possible here; /docs says what is.",
    }
    sentence = sentences.get(error.status_code, f"{str(error.detail).rstrip('.')}.")
    return JSONResponse({"error": sentence}, status_code=error.status_code, headers=error.headers)


async def _refusal(request: Request, error: Exception) -> Response:
    refusal = as_refusal(error)
    shown = {"error": shortened(refusal.sentence)}
    return JSONResponse(shown, status_code=refusal.status, headers=refusal.headers)


async def _gone(request: Request, error: Exception) -> Response:
    """For the metrics alone: there is no client any more."""
    return Response(status_code=GONE)


__all__ = ["SECTIONS", "Refusal", "Server", "create_app"]
