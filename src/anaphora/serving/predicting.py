"""``POST /predict``: inputs as JSON, as the body itself, or as files of a form; the answers as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from anaphora.data.sources.formats import ending_of
from anaphora.files import parse_json
from anaphora.kinds.doors import Bounds
from anaphora.serving.exchange.inputs import Question
from anaphora.serving.refusals import Refusal, malformed, unusable
from anaphora.serving.requests import (
    LARGE,
    client_of,
    json_body,
    json_response,
    media_type,
    reading,
    while_there,
)

if TYPE_CHECKING:
    from anaphora.serving.app import Server
    from anaphora.serving.served import Served

INPUTS = "inputs"
MOST_FIELDS = 64
TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".feather", ".xlsx")
"""Endings of files that hold many inputs."""
Read = tuple[list[Any], dict[str, Any]]


def routes(server: Server) -> list[BaseRoute]:
    """``/predict`` for the only run, ``/runs/NAME/predict`` for each; ``/runs`` lists them."""

    async def predict(request: Request) -> Response:
        with server.runs.using(request.path_params.get("name")) as served:
            inputs, options = await _read(request, served)
            answers = await while_there(request, served.ask(inputs, options, client_of(request)))
            found = {"run": served.name, "task": served.task.command, "version": served.version}
            return json_response({**found, "outputs": answers})

    async def predict_named(request: Request) -> Response:
        return await predict(request)

    async def listed(request: Request) -> Response:
        return json_response({"runs": [about(served) for served in server.runs]})

    return [
        Route("/runs", listed),
        Route("/predict", predict, methods=["POST"]),
        Route("/runs/{name}/predict", predict_named, methods=["POST"]),
    ]


def about(served: Served) -> dict[str, Any]:
    """A run as the list of runs shows it."""
    return {
        "name": served.name,
        "task": served.task.command,
        "model": str(served.config.settings.model),  # type: ignore[attr-defined]
        "version": served.version,
        "input": served.exchange.doors.name,
        "options": ["details", *served.exchange.option_names()],
    }


async def _read(request: Request, served: Served) -> Read:
    """The inputs and the options of a request, in the form that its content type names."""
    asked = typed(request.query_params.multi_items())
    kind = media_type(request)
    if kind in ("application/json", ""):
        body = await json_body(request)
        if INPUTS not in body:
            raise unusable('the body has no inputs; write {"inputs": […]}.')
        given = body.pop(INPUTS)
        if twice := asked.keys() & body.keys():
            raise malformed(f"{min(twice)} stands in the address and in the body; write it once.")
        options = served.exchange.options({**asked, **body})
        return await _in_thread(
            served, lambda: served.exchange.read(given), len(await request.body())
        ), options
    if kind == "application/x-www-form-urlencoded":
        raise Refusal(
            415, "send JSON with `Content-Type: application/json`, a file as it is, or a form with files."
        )
    if kind == "multipart/form-data":
        return await _form(request, served, asked)
    options = served.exchange.options(asked)
    content = await request.body()
    exchange = served.exchange
    return await _in_thread(
        served,
        lambda: [exchange.checked(exchange.doors.from_bytes(content, "the body", exchange.bounds), 1)],
        len(content),
    ), options


async def _form(request: Request, served: Served, asked: dict[str, Any]) -> Read:
    """Files are inputs, in order; of a run that reads texts so are the fields called ``inputs``. Other fields are options."""
    limits, exchange = served.limits, served.exchange
    async with request.form(
        max_files=limits.inputs, max_fields=MOST_FIELDS, max_part_size=4 * limits.characters
    ) as form:
        files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        contents = [await file.read() for file in files]
        fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    texts = [value for name, value in fields if name == INPUTS]
    rest = [(name, value) for name, value in fields if name not in (INPUTS, "question", "choices")]
    options = exchange.options({**asked, **typed(rest)})
    doors, bounds = exchange.doors, exchange.bounds
    table = next(
        (name for name in (file.filename or "" for file in files) if ending_of(name) in TABLES), None
    )
    if table is not None and doors.textual:
        raise unusable(
            f"{' '.join(table.split())[:80]} is a table, and a file is read as one text here; send its rows as JSON, or ask `anaphora predict`."
        )
    if texts and not doors.textual:
        raise unusable("inputs of this run are files or JSON, not fields of text; attach a file.")

    exchange.spelled(sum(len(value) for _, value in fields))
    size = sum(map(len, contents))
    if doors.textual and size > 4 * limits.characters:
        exchange.spelled(size // 4)

    def read() -> list[Any]:
        if isinstance(doors, Question):
            return exchange.gathered(_questions(doors, bounds, contents, fields))
        uploads = [doors.from_bytes(one, f"input {i}", bounds) for i, one in enumerate(contents, start=1)]
        return exchange.gathered([*(doors.from_json(text, "inputs", bounds) for text in texts), *uploads])

    return await _in_thread(served, read, size + sum(len(value) for _, value in fields)), options


def _questions(
    doors: Question, bounds: Bounds, contents: list[bytes], fields: list[tuple[str, str]]
) -> list[Any]:
    """A picture with each of its questions, or each picture with its question."""
    questions = [value for name, value in fields if name == "question"]
    choices = [value for name, value in fields if name == "choices"] or None
    pictures = [
        doors.picture.from_bytes(content, f"picture {i}", bounds)
        for i, content in enumerate(contents, start=1)
    ]
    if len(pictures) == 1:
        pictures *= len(questions)
    if not questions or len(pictures) != len(questions):
        raise unusable(
            f"{len(pictures)} pictures and {len(questions)} fields question do not fit; send as many."
        )
    both = enumerate(zip(pictures, questions, strict=True), start=1)
    return [doors.joined(picture, question, choices, f"input {i}", bounds) for i, (picture, question) in both]


async def _in_thread(served: Served, read: Callable[[], list[Any]], size: int) -> list[Any]:
    """Short texts are read at once; what has to be unpacked, and all that is large, in a thread, so that other requests go on."""
    return await reading(read, size if served.exchange.doors.textual else max(size, LARGE + 1))


def typed(fields: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Options that came as texts (of a query or a form): numbers, true and false are what they look like."""
    found: dict[str, Any] = {}
    for name, text in fields:
        if name in found:
            raise malformed(f"{name} is given twice; write it once.")
        try:
            value = parse_json(text)
        except ValueError:
            value = text
        found[name] = value if isinstance(value, int | float) else text
    return found
