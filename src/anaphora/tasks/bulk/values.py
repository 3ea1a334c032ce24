"""``predict_each``: what ``predict`` gives, for inputs that need not fit into memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from anaphora.errors import DataError
from anaphora.kinds.result import Result, plain_value
from anaphora.tasks.bulk.engine import Bulk
from anaphora.tasks.bulk.outfile import OutFile
from anaphora.tasks.bulk.windows import item
from anaphora.tasks.bulk.worker import Answer, Asked
from anaphora.training.weights import digest_of

MAKER = "anaphora.tasks.bulk.values:answering"


def answering(model: Any, options: Mapping[str, Any]) -> Answer:
    """An `Answer` by the model's own ``predict``."""

    def answer(asked: Asked) -> Iterator[Any]:
        yield from model.predict([given for _, given in asked], **options)

    return answer


def predict_each(
    model: Any, inputs: Iterable[Any], options: Mapping[str, Any], workers: int | None
) -> Iterator[Any]:
    """What ``model.predict`` gives for each input, in order, a window at a time."""
    for answered in Bulk(model, MAKER, options, workers=workers).answers(map(item, _each(inputs))):
        yield from answered.answers


def predict_to(
    model: Any,
    inputs: Iterable[Any],
    out: str | Path,
    options: Mapping[str, Any],
    workers: int | None,
    force: bool,
) -> int:
    """Write what `predict_each` gives into a file of JSON lines; how many there are."""
    of = {"model": identity(model), "options": json.loads(json.dumps(options, default=str)), "form": "values"}
    bulk = Bulk(model, MAKER, options, workers=workers)
    with OutFile(out, of, anew=force) as file:
        for answered in bulk.answers(file.rest(map(item, _each(inputs))), first=file.inputs + 1):
            if answered.whole:
                file.write(answered.items, lines_of(answered.answers, file.inputs + 1))
        file.finish()
        return file.inputs


def lines_of(answers: Iterable[Any], first: int) -> bytes:
    """``{"line": 1, "output": …}`` for each answer."""
    records = ({"line": number, "output": _json(one)} for number, one in enumerate(answers, start=first))
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def identity(model: Any) -> str:
    """A hash of the weights, and of the settings, of a trained model."""
    settings = json.loads(model.settings_.model_dump_json())
    return digest_of({"task": model.command, "settings": settings}, model._weights())


def _json(value: Any) -> Any:
    return value.to_dict() if isinstance(value, Result) else plain_value(value)


def _each(inputs: Iterable[Any]) -> Iterable[Any]:
    if isinstance(inputs, str | bytes | Path):
        raise DataError("predict_each takes inputs, one after the other: give a list or an iterator.")
    return inputs
