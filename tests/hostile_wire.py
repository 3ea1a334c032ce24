"""Clients that mean no good, for the server, the studio and the soak: what they are made of, and what any route can be sent.

Each is bounded in bytes and in time, and says how it was answered: a status, ``closed`` or ``left``. A client's name is
``idea: what it does``, or ``idea: route`` where the idea is one of `ANYWHERE`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

Outcome = str
SECONDS = 60.0
"""How long one of them waits for an answer."""
CLOSED, LEFT = "closed", "left"
FINE = frozenset(
    [
        "101",
        "200",
        "206",
        "304",
        "400",
        "401",
        "403",
        "404",
        "405",
        "408",
        "411",
        "413",
        "414",
        "415",
        "422",
        "429",
        "431",
        "503",
    ]
)
"""How they may be answered: never by a fault of the server's own."""


class Wire:
    """A connection that is given bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    async def send(self, content: bytes) -> None:
        with contextlib.suppress(OSError):
            self.writer.write(content)
            await self.writer.drain()

    async def status(self) -> Outcome:
        """The status of the answer, once its head has come."""
        try:
            async with asyncio.timeout(SECONDS):
                line = await self.reader.readline()
                return line.split(b" ", 2)[1].decode() if line.startswith(b"HTTP/1.") else CLOSED
        except (OSError, ValueError, IndexError):
            return CLOSED

    def leave(self) -> Outcome:
        self.writer.transport.abort()
        return LEFT


@contextlib.asynccontextmanager
async def wire(port: int) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


def head(port: int, line: str, *more: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", f"Host: 127.0.0.1:{port}", *more, "", "")).encode("latin-1")


def sends(method: str, path: str, body: bytes = b"", kind: str = "application/json", *more: str) -> Any:
    """A whole request."""

    async def client(port: int) -> Outcome:
        async with wire(port) as there:
            headers = (f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more)
            await there.send(head(port, f"{method} {path}", *headers) + body)
            return await there.status()

    return client


def raw(content: Callable[[int], bytes]) -> Any:
    """Bytes of which the server must make what it can."""

    async def client(port: int) -> Outcome:
        async with wire(port) as there:
            await there.send(content(port))
            return await there.status()

    return client


def leaves(content: Callable[[int], bytes], after: int = 0) -> Any:
    """Sends, reads so many bytes of the answer, and is gone."""

    async def client(port: int) -> Outcome:
        async with wire(port) as there:
            await there.send(content(port))
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with asyncio.timeout(SECONDS):
                    await there.reader.readexactly(after)
            return there.leave()

    return client


def as_json(path: str, value: Any) -> Any:
    return sends("POST", path, json.dumps(value).encode())


def post(port: int, path: str, value: Any) -> bytes:
    body = json.dumps(value).encode()
    return head(port, f"POST {path}", "Content-Type: application/json", f"Content-Length: {len(body)}") + body


async def many(port: int, one: Callable[[int], Awaitable[Outcome]], count: int) -> Outcome:
    found = await asyncio.gather(*(one(port) for _ in range(count)), return_exceptions=True)
    return ", ".join(sorted({one if isinstance(one, str) else CLOSED for one in found}))


def crowd(one: Any, count: int) -> Any:
    return lambda port: many(port, one, count)


def holds(content: Callable[[int], bytes], count: int = 40) -> Any:
    """Connections that say something and then nothing, while others ask."""

    async def client(port: int) -> Outcome:
        async with contextlib.AsyncExitStack() as held:
            for _ in range(count):
                await (await held.enter_async_context(wire(port))).send(content(port))
            return await sends("GET", "/v2/health/live")(port)

    return client


# ---------------------------------------------------------------------- what any route can be sent
Client = Callable[[int], Awaitable[Outcome]]
Route = tuple[str, str]
"""A method and a path."""


def asks(line: str, *headers: str, body: bytes = b"", more: bytes = b"") -> Client:
    """A request whose line is sent as it is; ``more`` follows its body."""
    return raw(lambda port: head(port, line, *headers) + body + more)


def half_closed(content: Callable[[int], bytes]) -> Client:
    """Sends, closes its own half of the connection, and waits for the answer."""

    async def client(port: int) -> Outcome:
        async with wire(port) as there:
            await there.send(content(port))
            with contextlib.suppress(OSError):
                there.writer.write_eof()
            return await there.status()

    return client


def in_pieces(content: Callable[[int], bytes], size: int = 7) -> Client:
    """Sends a request in segments of a few bytes."""

    async def client(port: int) -> Outcome:
        async with wire(port) as there:
            whole = content(port)
            for at in range(0, len(whole), size):
                await there.send(whole[at : at + size])
                await asyncio.sleep(0)
            return await there.status()

    return client


def turns_away(content: Callable[[int], bytes]) -> Client:
    """Sends a good request behind it on the same connection, and leaves after the first byte of the first answer."""
    return leaves(lambda port: content(port) * 2, 1)


def _line(method: str, path: str) -> str:
    return f"{method} {path}"


ANYWHERE: dict[str, Callable[[str, str, tuple[str, ...]], Client]] = {
    "a body that no one asked for": lambda m, p, h: asks(_line(m, p), *h, "Content-Length: 70000", body=b"x" * 70_000),
    "a verb of another age": lambda m, p, h: asks(_line("BREW", p), *h),
    "tracing": lambda m, p, h: asks(_line("TRACE", p), *h, "Max-Forwards: 0", "Via: 1.1 evil.example"),
    "a preflight from elsewhere": lambda m, p, h: asks(
        _line("OPTIONS", p), *h, "Origin: http://evil.example", "Access-Control-Request-Method: DELETE"
    ),
    "the head alone": lambda m, p, h: asks(_line("HEAD", p), *h),
    "a name a thousand times": lambda m, p, h: asks(_line(m, p + "?" + "&".join(["inputs=1"] * 800)), *h),
    "bytes that are no text": lambda m, p, h: asks(_line(m, f"{p}?run=%ff%fe%00%0d%0aX:y&text=%ed%a0%80"), *h),
    "numbers beyond numbers": lambda m, p, h: asks(_line(m, f"{p}?w={'9' * 4000}&example=-1e999&step=0x10&beam=nan"), *h),
    "another spelling of the path": lambda m, p, h: asks(_line(m, f"/.{p};v=1/%2e%2e{p}//"), *h),
    "hundreds of ranges": lambda m, p, h: asks(_line(m, p), *h, "Range: bytes=" + ",".join(["0-"] * 900)),
    "an essay of what is accepted": lambda m, p, h: asks(_line(m, p), *h, "Accept: " + ", ".join(f"a/{i};q=0.{i}" for i in range(900))),
    "biscuits": lambda m, p, h: asks(_line(m, p), *h, *(f"Cookie: a{i}=\"b" for i in range(90))),
    "a caller who says who he is": lambda m, p, h: asks(
        _line(m, p), *h, "X-Forwarded-For: 10.0.0.1", "Forwarded: for=unknown;host=evil", "X-HTTP-Method-Override: DELETE", "X-Real-IP: ::1"
    ),
    "an upgrade to what is not there": lambda m, p, h: asks(
        _line(m, p), *h, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 99", "Sec-WebSocket-Key: x"
    ),
    "a folded header": lambda m, p, h: asks(_line(m, p), *h, "X-A: 1\r\n  folded", "X-B : 2"),
    "chunks and trailers": lambda m, p, h: asks(
        _line(m, p), *h, "Transfer-Encoding: chunked", "Trailer: Host", body=b"2\r\n{}\r\n0\r\nHost: evil.example\r\n\r\n"
    ),
    "half a connection": lambda m, p, h: half_closed(lambda port: head(port, _line(m, p), *h)),
    "a few bytes at a time": lambda m, p, h: in_pieces(lambda port: head(port, _line(m, p), *h)),
    "a second question and away": lambda m, p, h: turns_away(lambda port: head(port, _line(m, p), *h)),
    "a line of HTTP/3": lambda m, p, h: raw(lambda port: head(port, _line(m, p), *h).replace(b"HTTP/1.1", b"HTTP/3.0", 1)),
    "line feeds alone": lambda m, p, h: raw(lambda port: head(port, _line(m, p), *h).replace(b"\r\n", b"\n")),
    "a length below nothing": lambda m, p, h: asks(_line(m, p), *h, "Content-Length: -1"),
}  # fmt: skip
"""Ideas that fit any route: of a method, a path and the headers that an honest client has."""


def anywhere(
    routes: list[Route], least: int, *headers: str, most: int = 10
) -> dict[Route, dict[str, Client]]:
    """Return for each route as many clients as the number that it lacks, of ideas in turn, each of which is had ``most`` times."""
    ideas = [name for _ in range(most) for name in ANYWHERE]
    found: dict[Route, dict[str, Client]] = {}
    for route in routes:
        chosen = [ideas.pop(0) for _ in range(least)]
        method, path = route
        for one in ("{name:path}", "{name}"):
            path = path.replace(one, "translate")
        path = path.replace("{version}", "1")
        found[route] = {
            f"{idea}: {' '.join(route)}": ANYWHERE[idea](method, path, headers) for idea in chosen
        }
    return found
