"""ASGI messages of both servers: refusals in one sentence, headers that every page has, and work that ends when its client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

T = TypeVar("T")
LONGEST_SENTENCE = 1000
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Left(Exception):  # noqa: N818 (not an error: the client has left)
    """The client closed its connection; nothing is to be answered."""


async def while_there(receive: Receive, work: Awaitable[T]) -> T:
    """What ``work`` gives; it is cancelled, and `Left` raised, once the client has closed its connection.

    Only after the body was read: what then arrives is that the client has left.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Left
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def with_headers(send: Send) -> Send:
    """``send``, with `HEADERS` at the start of each response."""

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return adding


def shortened(sentence: str) -> str:
    """The sentence, cut where it is too long for a page."""
    return sentence if len(sentence) <= LONGEST_SENTENCE else f"{sentence[:LONGEST_SENTENCE]} …"


async def refuse(send: Send, status: int, sentence: str, *more: tuple[bytes, bytes]) -> None:
    """Answer with ``{"error": sentence}``; ``more`` are headers."""
    body = json.dumps({"error": shortened(sentence)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    if status == 503 and not any(name == b"retry-after" for name, _ in more):
        headers.append((b"retry-after", b"2"))
    await with_headers(send)({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
