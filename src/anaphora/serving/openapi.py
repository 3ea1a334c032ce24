"""``/openapi.json``: what can be asked, generated from the types that requests are checked against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, create_model
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from anaphora._version import __version__
from anaphora.serving.exchange.options import options_of
from anaphora.serving.exchange.types import Failure, Infer, Inferred
from anaphora.serving.requests import json_response

if TYPE_CHECKING:
    from anaphora.serving.app import Server
    from anaphora.serving.served import Served

Model = type[BaseModel]


@dataclass(frozen=True)
class Operation:
    """One path and method: what it does, and the types of its body and of its answer (None: not JSON, or none)."""

    method: str
    path: str
    summary: str
    body: Model | None = None
    answer: Model | None = None
    media: str = "application/json"
    """The content type of the answer."""


Operations = Callable[["Server"], list[Operation]]
DESCRIBED: list[Operations] = []
"""Sections of routes append a function that describes them; called for each document, as runs may be replaced."""


def routes(server: Server) -> list[BaseRoute]:
    """``/openapi.json``."""

    async def openapi(request: Request) -> Response:
        return json_response(document(server))

    return [Route("/openapi.json", openapi)]


def document(server: Server) -> dict[str, Any]:
    """The OpenAPI 3.1 document of all that is served."""
    operations = [one for describe in (_own, *DESCRIBED) for one in describe(server)]
    used = {model for one in operations for model in (one.body, one.answer) if model is not None} | {Failure}
    ordered = sorted(used, key=lambda model: model.__name__)
    refs, schemas = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method] = _described(one, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "anaphora serve", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(one: Operation, refs: Any) -> dict[str, Any]:
    def content(model: Model | None, media: str = "application/json") -> dict[str, Any]:
        return {} if model is None else {"content": {media: {"schema": refs[model, "validation"]}}}

    found: dict[str, Any] = {"summary": one.summary, "security": [{"token": []}, {}]}
    if one.body is not None:
        found["requestBody"] = {"required": True, **content(one.body)}
    answer = content(one.answer, one.media) or {"content": {one.media: {}}}
    found["responses"] = {
        "200": {"description": "The answer.", **answer},
        "default": {"description": "A refusal, in one sentence.", **content(Failure)},
    }
    return found


def _own(server: Server) -> list[Operation]:
    found = [
        Operation("get", "/v2/health/live", "Whether the server lives."),
        Operation("get", "/v2/health/ready", "Whether the server takes requests."),
        Operation("get", "/v2", "Name, version and extensions of the server."),
        Operation("get", "/runs", "The runs that are served."),
        Operation("get", "/metrics", "Counters for Prometheus.", media="text/plain"),
    ]
    for served in server.runs:
        path = f"/v2/models/{served.name}"
        body, answer = request_model(served), answer_model(served)
        paths = ["/predict"] * (len(server.runs) == 1) + [f"/runs/{served.name}/predict"]
        found += [Operation("post", one, served.task.summary, body, answer) for one in paths]
        found += [
            Operation("get", path, "Inputs and outputs of the run as tensors."),
            Operation("get", f"{path}/ready", "Whether the run takes requests."),
            Operation("post", f"{path}/infer", "Tensors in, tensors out.", Infer, Inferred),
        ]
    return found


def request_model(served: Served) -> Model:
    """The body of ``/predict`` of a run: its inputs, ``details``, and the options of its task."""
    most = served.limits.inputs
    fields: dict[str, Any] = {
        "inputs": (_listed(served.exchange.doors.schema), Field(min_length=1, max_length=most)),
        "details": (bool, Field(False, description="Scores and probabilities beside each output.")),
    }
    for name, info in options_of(served.task).items():
        fields[name] = (info.annotation, info)
    return create_model(f"{_title(served)}Request", **fields)


def answer_model(served: Served) -> Model:
    """The answer of ``/predict`` of a run."""
    fields: dict[str, Any] = dict.fromkeys(("run", "task", "version"), (str, ...))
    fields["outputs"] = (
        _listed(served.exchange.schema),
        Field(description="One for each input, in order."),
    )
    return create_model(f"{_title(served)}Answer", **fields)


def _listed(one: Any) -> Any:
    return list[one]


def _title(served: Served) -> str:
    """A name for the schemas of a run."""
    return "".join(
        part.capitalize() for part in "".join(c if c.isalnum() else " " for c in served.name).split()
    )
