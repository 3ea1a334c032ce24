"""``POST /v1/completions`` and ``GET /v1/models``, as OpenAI's clients speak them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from anaphora.errors import AnaphoraError
from anaphora.serving.generation.asked import Asked, Completed, read_asked
from anaphora.serving.generation.completion import Completion, prompts_of
from anaphora.serving.generation.of_run import Engines, continues
from anaphora.serving.guard import as_refusal
from anaphora.serving.openapi import DESCRIBED, Operation
from anaphora.serving.refusals import Refusal
from anaphora.serving.requests import client_of, json_body, json_response, reading, while_there
from anaphora.web.answers import Left

if TYPE_CHECKING:
    from anaphora.serving.app import Server
    from anaphora.serving.served import Served


def routes(server: Server) -> list[BaseRoute]:
    """Completions by the language models among the runs, and the list of these."""
    engines, began = Engines(), int(time.time())

    async def complete(request: Request) -> Response:
        try:
            body = await json_body(request)
            size = len(await request.body())
            asked = await reading(lambda: read_asked(body), size)
            served = server.runs.get(asked.model)
            engine = await asyncio.to_thread(engines.of, served)  # the first time, weights are packed
            prompts = await reading(lambda: prompts_of(served, asked), size)
            work = Completion(engine, served, asked, prompts, client_of(request))
            if asked.stream:
                return _Events(work)
            try:
                found = await while_there(request, work.whole())
            finally:
                work.end()
            return json_response(found)
        except (Refusal, AnaphoraError) as error:
            return _refused(as_refusal(error))

    async def models(request: Request) -> Response:
        found = [_model(one, began) for one in server.runs if continues(one)]
        return json_response({"object": "list", "data": found})

    async def one_model(request: Request) -> Response:
        try:
            return json_response(_model(server.runs.get(request.path_params["name"]), began))
        except Refusal as refusal:
            return _refused(refusal)

    return [
        Route("/v1/completions", complete, methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", one_model, methods=["GET"]),
    ]


def described(server: Server) -> list[Operation]:
    """For the document of all that is served."""
    if not any(map(continues, server.runs)):
        return []
    return [
        Operation("post", "/v1/completions", "New text, as OpenAI's clients ask for it.", Asked, Completed),
        Operation("get", "/v1/models", "The runs that write text."),
    ]


DESCRIBED.append(described)


def _model(served: Served, began: int) -> dict[str, Any]:
    return {"id": served.name, "object": "model", "created": began, "owned_by": "anaphora"}


def _refused(refusal: Refusal) -> Response:
    """In OpenAI's form."""
    kind = "invalid_request_error" if refusal.status < 500 and refusal.status != 429 else "server_error"
    kind = "rate_limit_error" if refusal.status == 429 else kind
    status = 400 if refusal.status == 422 else refusal.status
    error = {"message": refusal.sentence, "type": kind, "param": None, "code": None}
    return json_response({"error": error}, status, refusal.headers)


class _Events(Response):
    """Server-sent events: each chunk as it comes, then ``[DONE]``. When the client leaves, the work ends."""

    def __init__(self, work: Completion):
        super().__init__(status_code=200, media_type="text/event-stream")
        self.work = work

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def write() -> None:
            headers = [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-store"),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for event in _events(self.work):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        try:
            await while_there(Request(scope, receive), write())
        except Left:
            pass
        finally:
            self.work.end()


async def _events(work: Completion) -> AsyncIterator[bytes]:
    try:
        async for chunk in work.chunks():
            yield _event(chunk)
        if work.asked.stream_options is not None and work.asked.stream_options.include_usage:
            yield _event(work.last())
    except Exception as error:  # the status has been sent: the stream says what happened
        refusal = as_refusal(error)
        yield _event(
            {"error": {"message": refusal.sentence, "type": "server_error", "param": None, "code": None}}
        )
    yield b"data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b"data: " + text.encode() + b"\n\n"
