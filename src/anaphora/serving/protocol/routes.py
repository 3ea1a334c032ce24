"""``/v2``, ``/v2/models/NAME``, ``…/ready`` and ``…/infer``, with and without ``/versions/VERSION``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from anaphora._version import __version__
from anaphora.serving.protocol.tasks import input_specs, inputs_of, output_specs, outputs_of
from anaphora.serving.protocol.tensors import Tensor, read_tensors
from anaphora.serving.refusals import Refusal, malformed, unknown, unusable
from anaphora.serving.requests import (
    LARGE,
    client_of,
    json_body,
    json_response,
    parsed_object,
    reading,
    while_there,
)

if TYPE_CHECKING:
    from anaphora.serving.app import Server
    from anaphora.serving.served import Served

HEAD = "inference-header-content-length"
"""How many bytes of the body are JSON; tensors follow it."""
OWN = ("binary_data_output", "sequence_id", "sequence_start", "sequence_end", "priority", "timeout")
"""Parameters of the protocol and of Triton's clients that are no options of ``predict``."""


def routes(server: Server) -> list[BaseRoute]:
    """All routes of the protocol but the two of health, which `health` has."""

    async def about(request: Request) -> Response:
        found = {"name": "anaphora", "version": __version__, "extensions": ["binary_tensor_data"]}
        return json_response(found)

    async def metadata(request: Request) -> Response:
        served = _asked(server, request)
        found = {
            "name": served.name,
            "versions": [served.version],
            "platform": f"anaphora_{served.task.command}",
        }
        specs = {"inputs": input_specs(served.exchange), "outputs": output_specs(served.exchange)}
        return json_response({**found, **specs})

    async def ready(request: Request) -> Response:
        served = _asked(server, request)
        fine = server.ready and not served.stuck
        return json_response({"name": served.name, "ready": fine}, 200 if fine else 503)

    async def infer(request: Request) -> Response:
        with server.runs.using(_asked(server, request).name) as served:
            head, tail = await _body(request)
            parameters = _object(head, "parameters")
            asked = {name: value for name, value in parameters.items() if name not in OWN}
            options = served.exchange.options(asked)

            def read() -> list[Any]:
                tensors = read_tensors(head.get("inputs"), tail, texts=server.limits.inputs)
                return inputs_of(served.exchange, tensors)

            textual = served.exchange.doors.textual
            inputs = await reading(read, len(await request.body()) if textual else LARGE + 1)
            answers = await while_there(request, served.ask(inputs, options, client_of(request)))
            return _response(
                served, head, outputs_of(answers), binary=bool(parameters.get("binary_data_output"))
            )

    found: list[BaseRoute] = [Route("/v2", about)]
    for start in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        found += [
            Route(start, metadata),
            Route(f"{start}/ready", ready),
            Route(f"{start}/infer", infer, methods=["POST"]),
        ]
    return found


def _asked(server: Server, request: Request) -> Served:
    served = server.runs.get(request.path_params["name"])
    version = request.path_params.get("version", served.version)
    if version != served.version:
        raise unknown(f"{served.name} has no version {version[:40]!r}; it is {served.version}.")
    return served


async def _body(request: Request) -> tuple[dict[str, Any], bytes]:
    """The JSON of a request, and the bytes of tensors after it."""
    if HEAD not in request.headers:
        return await json_body(request), b""
    size, content = request.headers[HEAD], await request.body()
    if not (size.isascii() and size.isdigit()) or len(size) > 12 or int(size) > len(content):
        raise malformed(f"{HEAD} must be the number of bytes of the JSON at the beginning of the body.")
    return await parsed_object(content[: int(size)]), content[int(size) :]


def _object(head: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = head.get(name) or {}
    if not isinstance(found, dict):
        raise malformed(f"{name} must be an object.")
    return found


def _response(served: Served, head: Mapping[str, Any], tensors: list[Tensor], *, binary: bool) -> Response:
    """The requested tensors, as JSON, or as bytes after it."""
    wanted = head.get("outputs") or [{"name": tensor.name} for tensor in tensors]
    if not isinstance(wanted, list) or not all(isinstance(one, dict) for one in wanted):
        raise malformed("outputs must be a list of objects with a name.")
    by_name = {tensor.name: tensor for tensor in tensors}
    listed, tail = [], b""
    for one in wanted:
        tensor = by_name.get(str(one.get("name")))
        if tensor is None:
            raise unusable(
                f"there is no output {str(one.get('name'))[:40]!r}; there is {', '.join(by_name)}."
            )
        if _object(one, "parameters").get("binary_data", binary):
            raw = tensor.raw()
            listed.append({**tensor.spec(), "parameters": {"binary_data_size": len(raw)}})
            tail += raw
        else:
            listed.append({**tensor.spec(), "data": tensor.flat()})
    found = {"model_name": served.name, "model_version": served.version}
    if "id" in head:
        if not isinstance(head["id"], str) or len(head["id"]) > 200:
            raise Refusal(400, "id must be a text of at most 200 characters.")
        found["id"] = head["id"]
    response = json_response({**found, "outputs": listed})
    if tail:
        size = str(len(response.body))
        return Response(
            bytes(response.body) + tail, media_type="application/octet-stream", headers={HEAD: size}
        )
    return response
