"""Bodies of requests as JSON or as forms, and answers that stop when the client has left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from anaphora.files import parse_json
from anaphora.serving.refusals import Refusal, malformed
from anaphora.web import answers

T = TypeVar("T")
LARGE = 1 << 14
"""Bytes of a body that are read in a thread, so that other requests go on."""
READERS = 2
"""Bodies that are read at the same time: each may be unpacked to many times its size."""
_readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")


def client_of(request: Request) -> str:
    """Return the address of the client, by which costs are added up."""
    return "" if request.client is None else request.client.host


async def reading(read: Callable[[], T], size: int) -> T:
    """What ``read`` makes of a body of ``size`` bytes; of a large one in one of a few threads."""
    if size <= LARGE:
        return read()
    return await asyncio.get_running_loop().run_in_executor(_readers, read)


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
    parsed = await reading(lambda: _parsed(content), len(content))
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
    """`anaphora.web.answers.while_there`, for a request whose body was read."""
    return await answers.while_there(request.receive, work)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Compact JSON; numbers that are not finite would not be JSON and are an error."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, status_code=status, media_type="application/json", headers=headers)
