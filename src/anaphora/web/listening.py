"""Sockets of both servers: connections with a limited number, patience with clients that is limited, and signals that end a server.

A connection has ten seconds for the head of each request; one whose client reads too slowly, or not at all, is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from anaphora.errors import AnaphoraError

LOCAL = "127.0.0.1"
"""The host that both servers listen on unless another one is named."""
HEADER_SECONDS = 10.0
"""How long a client may take over the first line and headers of a request."""
READER_SECONDS = 30.0
"""How long a client may leave what it is sent unread, once the buffers are full."""
AT_ONCE = 64
"""Connections that are accepted one after the other before anything else is done."""
_SPARE = 32
"""Descriptors that are left for files."""
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ReaderInTime:
    """A connection whose client has to read: one that leaves full buffers unread is cut off."""

    transport: Any
    _unread: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self._stop_timer()
        self._unread = asyncio.get_running_loop().call_later(READER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_timer()
        super().resume_writing()  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)  # type: ignore[misc]

    def _stop_timer(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class Patient(ReaderInTime, H11Protocol):
    """Closes connections that dribble, and those above the number that there may be (``limit_concurrency``)."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > (self.config.limit_concurrency or sys.maxsize):
            transport.abort()
            return
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
        # not close(): that waits until the client has read all that it was sent
        self._deadline = asyncio.get_running_loop().call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Server(uvicorn.Server):
    """Ends in order on SIGTERM, SIGINT and SIGHUP: `end` says what is done before it does. A second signal ends it at once."""

    def __init__(self, config: uvicorn.Config):
        super().__init__(config)
        self._asked = False

    async def end(self) -> None:
        """What is done between the signal and the end of the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's, this does not raise the signal again: what follows the server still has to be done."""
        with handled(self.handle_exit):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._asked:
            self.should_exit = self.force_exit = True
            return
        self._asked = True
        self._loop.call_soon_threadsafe(lambda: setattr(self, "_ending", self._loop.create_task(self._end())))

    async def _end(self) -> None:
        await self.end()
        self.should_exit = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_handler())
        await super().serve(sockets)


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Within, ``handler`` gets the signals that ask a server to end; SIGHUP only where it is not ignored (``nohup``)."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


def most_connections(wanted: int) -> int:
    """Return how many connections this process can have open, at most ``wanted``: each takes a descriptor, and so do files.

    The soft limit of descriptors is raised as far as the hard one allows and as is of use.
    """
    try:
        import resource
    except ImportError:  # Windows
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = wanted + 16 * _SPARE
    if soft != resource.RLIM_INFINITY and soft < more:
        soft = more if hard == resource.RLIM_INFINITY else min(hard, more)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return wanted
    try:
        opened = len(os.listdir("/proc/self/fd"))
    except OSError:
        opened = _SPARE
    return max(1, min(wanted, (soft - opened - _SPARE) * 3 // 4))


def accepted_at_once(connections: int) -> int:
    """Return how many connections may be accepted one after the other, where there may be so many: those above are closed next."""
    return max(1, min(AT_ONCE, connections // 4))


def _handler() -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """A handler of errors that no task has: that there is no room for another connection is said once."""
    said = False

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            if not said:
                said = True
                reason = (error.strerror or str(error)).lower()
                text = f"anaphora: note: connections have to wait ({reason}); allow more with `ulimit -n`."
                print(text, file=sys.stderr, flush=True)  # noqa: T201
            return
        loop.default_exception_handler(context)

    return handle


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
