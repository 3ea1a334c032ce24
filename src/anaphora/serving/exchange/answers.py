"""Answers of the tasks without a session as JSON values: what ``predict`` gives, and with ``details`` every number beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anaphora.data.asked import filled
from anaphora.kinds.labels import ranked
from anaphora.kinds.result import Result
from anaphora.tasks.outputs import Output

Options = dict[str, Any]
Answer = Callable[[Any, list[Any], Options], list[Any]]


def plain(value: Any) -> Any:
    """Numbers, texts, lists and dictionaries whose names are texts."""
    if isinstance(value, Result):
        return plain(value.to_dict())
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _tagged(model: Any, inputs: list[Any], options: Options) -> list[Any]:
    return [plain(one) for one in model.predict(inputs, details=options["details"])]


def _read(model: Any, inputs: list[Any], options: Options) -> list[Any]:
    def answer(full: list[Any]) -> list[Any]:
        found = model.read(full)
        if not options["details"]:
            return [line.log_prob for line in found]
        return [{**line.to_dict(), "perplexity": line.perplexity} for line in found]

    return filled(inputs, answer)


def _written(model: Any, inputs: list[Any], options: Options) -> list[Any]:
    details = options.pop("details")
    several = options.get("n_best", 1) > 1
    nothing = [] if several else [Output("", 0.0, 0.0, True)]
    found = filled(inputs, lambda full: model.search(full, **options), nothing)
    if several:
        return [plain(outputs) for outputs in found]
    return [plain(outputs[0]) if details else outputs[0].text for outputs in found]


def _transcribed(model: Any, inputs: list[Any], options: Options) -> list[Any]:
    details = options.pop("details")
    if options.get("n_best", 1) > 1:
        return [plain(found) for found in model.transcribe(inputs, **options)]
    return [plain(one) for one in model.predict(inputs, details=details, **options)]


def _answered(model: Any, inputs: list[Any], options: Options) -> list[Any]:
    top = options.get("top", 1)
    if top > 1:
        rows = model.predict_proba(inputs).tolist()
        return [ranked(dict(zip(model.answers_, row, strict=True)), top, "answer") for row in rows]
    return [plain(one) for one in model.predict(inputs, details=options["details"])]


def _forecast(model: Any, inputs: list[Any], options: Options) -> list[Any]:
    return [plain(one) for one in model.predict(inputs, **options)]


ANSWERS: dict[str, Answer] = {
    "tag": _tagged,
    "language": _read,
    "translate": _written,
    "transcribe": _transcribed,
    "caption": _written,
    "answer": _answered,
    "forecast": _forecast,
}
"""By the command of the task."""
