"""Bodies of requests as JSON or as forms, and answers that stop when the client has left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from anaphora.files import parse_json
from anaphora.serving.refusals import Refusal, malformed

T = TypeVar("T")
LARGE = 1 << 16
"""Bytes of a body that are parsed in a thread, so that other requests go on."""


class Left(Exception):  # noqa: N818 (not an error: the client has left)
    """The client closed its connection; nothing is to be answered."""


def media_type(request: Request) -> str:
    """The content type without its parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def json_body(request: Request) -> dict[str, Any]:
    """The object in the body. Raises a `Refusal` where there is none (400, 415)."""
    if media_type(request) not in ("application/json", ""):
        raise Refusal(415, "send JSON, with `Content-Type: application/json`.")
    return await parsed_object(await request.body())


async def parsed_object(content: bytes) -> dict[str, Any]:
    """The JSON object in ``content``. Raises a `Refusal` (400)."""
    parsed = await asyncio.to_thread(_parsed, content) if len(content) > LARGE else _parsed(content)
    if not isinstance(parsed, dict):
        raise malformed("the body must be a JSON object; write {…}.")
    return parsed


def _parsed(content: bytes) -> Any:
    try:
        return parse_json(content, pairs=_once)
    except ValueError as error:
        raise malformed(f"the body is not JSON that can be used ({error}).") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are all different: of two equal ones it is not clear which is meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


async def while_there(request: Request, work: Awaitable[T]) -> T:
    """What ``work`` gives; it is cancelled, and `Left` raised, once the client has closed its connection.

    Only after the body was read: what then arrives is that the client has left.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Left
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Compact JSON; numbers that are not finite would not be JSON and are an error."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, status_code=status, media_type="application/json", headers=headers)
