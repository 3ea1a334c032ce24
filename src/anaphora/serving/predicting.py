"""``POST /predict``: inputs as JSON, as the body itself, or as files of a form; the answers as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from anaphora.serving.refusals import unusable
from anaphora.serving.requests import json_body, json_response, media_type, while_there

if TYPE_CHECKING:
    from anaphora.serving.app import Server
    from anaphora.serving.served import Served

INPUTS = "inputs"


def routes(server: Server) -> list[BaseRoute]:
    """``/predict`` for the only run, ``/runs/NAME/predict`` for each."""

    async def predict(request: Request) -> Response:
        with server.runs.using(request.path_params.get("name")) as served:
            inputs, options = await _read(request, served)
            answers = await while_there(request, served.ask(inputs, options))
            found = {
                "run": served.name,
                "task": served.task.command,
                "version": served.version,
                "outputs": answers,
            }
            return json_response(found)

    async def predict_named(request: Request) -> Response:
        return await predict(request)

    return [
        Route("/predict", predict, methods=["POST"]),
        Route("/runs/{name}/predict", predict_named, methods=["POST"]),
    ]


async def _read(request: Request, served: Served) -> tuple[list[Any], dict[str, Any]]:
    """The inputs and the options of a request, in whichever form they came."""
    if media_type(request) in ("application/json", ""):
        body = await json_body(request)
        if INPUTS not in body:
            raise unusable('the body has no inputs; write {"inputs": […]}.')
        given = body.pop(INPUTS)
        options = served.exchange.options(body)
        return await asyncio.to_thread(served.exchange.read, given), options
    raise unusable("send JSON.")


def typed(fields: Mapping[str, str]) -> dict[str, Any]:
    """Options that came as texts (of a query or a form): numbers, true and false are what they look like."""
    raise NotImplementedError
