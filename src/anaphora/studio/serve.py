"""Start the server on this machine alone, and say where the page is."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from anaphora.errors import AnaphoraError
from anaphora.studio.app import create_app

HOST = "127.0.0.1"
CONNECTIONS = 64
HEADER_SECONDS = 10.0
"""How long a client may take over the first line and headers of a request."""


class Patient(H11Protocol):
    """Closes connections that dribble: a request's headers must have arrived within ten seconds."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is not None and self.cycle is not None and not self.cycle.response_complete:
            self._deadline.cancel()  # the headers are complete: the request has its own deadline from here on
            self._deadline = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def serve(folders: Sequence[Path], *, port: int = 0, ready: Callable[[str], None]) -> None:
    """Serve until interrupted. ``port`` 0 takes any free one; ``ready`` is called with the address once it answers."""
    listening = _listen(port)
    number = int(listening.getsockname()[1])
    token = secrets.token_urlsafe(24)
    app = create_app(folders, token=token, port=lambda: number)
    config = uvicorn.Config(
        app,
        http=Patient,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=10,
        h11_max_incomplete_event_size=70_000,
        timeout_graceful_shutdown=1,
        lifespan="off",
        ws="none",
    )
    server = uvicorn.Server(config)

    async def run() -> None:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            ready(f"http://{HOST}:{number}/#token={token}")
        await serving

    asyncio.run(run())


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise AnaphoraError(
            f"port {port} cannot be used ({reason.lower()}); choose another with --port."
        ) from None
    listening.listen(128)
    return listening
