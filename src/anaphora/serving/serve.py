"""Start the server: the socket, uvicorn, and what happens on SIGTERM."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvicorn

from anaphora.serving.app import Server, create_app
from anaphora.serving.limits import Limits
from anaphora.serving.listening import MESSAGE, Talk
from anaphora.serving.metrics import Metrics
from anaphora.serving.runs import Runs
from anaphora.web import listening as web
from anaphora.web.listening import LOCAL, Patient

SWITCH = 0.001
"""Seconds after which the thread of a model lets that of the requests go on; Python's 5 ms would be felt in every answer."""


def local_names(host: str, port: int) -> frozenset[str] | None:
    """The values of Host that a server answers to that others cannot reach; None where others can."""
    if host not in (LOCAL, "localhost", "::1"):
        return None
    return frozenset(f"{name}:{port}" for name in (LOCAL, "localhost", "[::1]"))


BACKLOG = 2048
"""Connections that the kernel keeps until they are accepted."""


class Draining(web.Server):
    """On the first signal new requests are refused and accepted ones finish; then the server ends. A second one ends it at once."""

    def __init__(self, config: uvicorn.Config, server: Server):
        super().__init__(config)
        self._server = server

    async def end(self) -> None:
        """Refuse new requests and wait for the accepted ones."""
        guard = self._server.guard
        assert guard is not None
        guard.draining = True
        until = self._loop.time() + self._server.limits.grace
        await asyncio.sleep(0.2)  # what has been accepted by the kernel is read, and answered or refused
        while guard.active and self._loop.time() < until:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)  # clients that asked meanwhile read that they are refused


async def serving(
    listening: socket.socket,
    runs: Runs,
    *,
    host: str = LOCAL,
    token: str | None = None,
    tls: tuple[str, str] | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer on ``listening`` until SIGTERM, SIGINT or SIGHUP."""
    app, server = create_app(runs, token=token, names=local_names(host, int(listening.getsockname()[1])))
    connections = web.most_connections(runs.limits.connections)
    config = uvicorn.Config(
        app,
        http=Patient,
        ws=Talk,
        log_level="critical",  # what strangers send is no news, and faults are written by the guard
        access_log=False,
        server_header=False,
        limit_concurrency=connections,
        timeout_keep_alive=10,
        h11_max_incomplete_event_size=70_000,
        timeout_graceful_shutdown=2,
        lifespan="off",
        ws_max_size=2 * MESSAGE,
        ws_per_message_deflate=False,
        backlog=web.accepted_at_once(connections),
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
    uvicorn_server = Draining(config, server)
    watching = asyncio.create_task(runs.watch()) if runs.limits.reload_seconds else None
    answering = asyncio.create_task(uvicorn_server.serve(sockets=[listening]))
    try:
        while not uvicorn_server.started and not answering.done():
            await asyncio.sleep(0.01)
        if uvicorn_server.started:
            listening.listen(BACKLOG)
            ready()
        await answering
    finally:
        if watching is not None:
            watching.cancel()
        runs.close()
        for end in server.endings:
            end()


def serve(
    listening: socket.socket,
    folders: Mapping[str, Path],
    limits: Limits,
    *,
    device: str = "auto",
    **how: Any,
) -> None:
    """Load the runs and answer until a signal ends it."""
    sys.setswitchinterval(SWITCH)
    runs = Runs(dict(folders), limits, Metrics(), device=device)
    asyncio.run(serving(listening, runs, **how))


__all__ = ["Draining", "local_names", "serve", "serving"]
