"""The lessons of ``docs/learn`` for the page: text, code and what the code prints, as blocks."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from anaphora.errors import AnaphoraError
from anaphora.learn.page import lesson, lessons


def listed() -> list[dict[str, Any]]:
    """Number and title of each lesson, and the command that opens it."""
    return [{"number": one.number, "title": one.title, "rows": list(one.rows)} for one in lessons()]


def opened(number: str) -> dict[str, Any]:
    """One lesson: its blocks of ``kind`` markdown, python or bash with ``text``, and ``output`` where it is shown."""
    if not (number.isascii() and number.isdigit() and len(number) < 4):
        raise AnaphoraError("name a lesson by its number.")
    one = lesson(int(number))
    blocks = [{"kind": b.kind, "text": b.text, "output": b.output} for b in one.blocks()]
    return {
        "number": one.number,
        "title": one.title,
        "command": f"anaphora learn {one.number}",
        "blocks": blocks,
    }


async def _list(request: Request) -> Response:
    return JSONResponse(listed())


async def _open(request: Request) -> Response:
    try:
        return JSONResponse(opened(request.query_params.get("number", "")))
    except AnaphoraError as error:
        return JSONResponse({"error": str(error)}, status_code=422)


def routes() -> list[Route]:
    return [Route("/api/lessons", _list), Route("/api/lesson", _open)]
