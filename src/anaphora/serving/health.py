"""Whether the server lives and is ready, and its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

if TYPE_CHECKING:
    from anaphora.serving.app import Server


def routes(server: Server) -> list[BaseRoute]:
    """``/v2/health/live``, ``/v2/health/ready`` and ``/metrics``."""

    async def live(request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(request: Request) -> Response:
        return JSONResponse({"ready": server.ready}, status_code=200 if server.ready else 503)

    async def metrics(request: Request) -> Response:
        return Response(server.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return [
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
        Route("/metrics", metrics),
    ]
