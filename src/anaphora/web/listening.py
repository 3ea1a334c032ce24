"""A socket to listen on, and connections that have a limited time for the head of each request."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from anaphora.errors import AnaphoraError

LOCAL = "127.0.0.1"
"""The host that both servers listen on unless another one is named."""
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
            self._stop_waiting()  # the headers are complete: the request has its own deadline from here on

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._stop_waiting()  # the connection belongs to another protocol now
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop_waiting()
        self._deadline = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def listen(port: int, host: str = LOCAL, *, backlog: int = 128) -> socket.socket:
    """A socket that listens on ``port`` of ``host`` (0: any free port), or an `AnaphoraError` that names the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        place = f"port {port}" if host == LOCAL else f"port {port} of {host}"
        raise AnaphoraError(
            f"{place} cannot be used ({reason.lower()}); choose another with --port."
        ) from None
    listening.listen(backlog)
    return listening
