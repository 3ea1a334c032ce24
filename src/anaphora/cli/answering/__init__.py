"""What ``anaphora predict`` prints: the values that each task returns, as text and as JSON.

The module of a task, or `session` for every task that has one, has two functions. ``asked(model, source, options)`` reads a file: lists of `Item`s, as they arrive.
``answering(model, options)`` makes the function that gives a `Response` for each of some inputs, in this process or in another.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from anaphora.cli.answering.response import Response
from anaphora.tasks.bulk.engine import Bulk
from anaphora.tasks.bulk.windows import Item
from anaphora.tasks.bulk.worker import Answer
from anaphora.tasks.guarding import answers_checked


def answering(model: Any, options: Mapping[str, Any]) -> Answer:
    """What gives the responses of a trained ``model``; see `anaphora.tasks.bulk.worker.Answer`."""
    answer: Answer = _home(model).answering(model, options)
    return answer


def asked(model: Any, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """The inputs in the file ``source`` (``-``: standard input), as they arrive. Raises a `DataError` for one that cannot be
    used."""
    found: Iterator[list[Item]] = _home(model).asked(model, source, options)
    return found


def bulk(model: Any, options: Mapping[str, Any], workers: int | None = None) -> Bulk:
    """The responses of ``model`` to any number of inputs."""
    home = _home(model)
    in_order = getattr(home, "in_order", lambda model: False)(model)
    part = getattr(home, "TOGETHER", None)
    return Bulk(model, f"{__name__}:answering", options, workers=workers, part=part, in_order=in_order)


def warn_of_left_out(model: Any, bad: int, of: int) -> None:
    """Warn of the inputs that could not be used, if there were any."""
    if bad:
        warnings.warn(str(_home(model).LEFT_OUT).format(bad=bad, of=of), stacklevel=2)


def respond(model: Any, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
    """The answers to ``source`` as its inputs come, one batch after the other; an error where a number is not finite."""
    return answers_checked(_batch_by_batch(model, source, options))


def _batch_by_batch(model: Any, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
    answer = answering(model, options)
    number = bad = 0
    for items in asked(model, source, options):
        numbered = [(number + place, one.given) for place, one in enumerate(items, start=1)]
        for one, response in zip(items, answer(numbered), strict=True):
            bad += "error" in response.record
            yield one.finish(response) if one.finish else response
        number += len(items)
    warn_of_left_out(model, bad, number)


def _home(model: Any) -> ModuleType:
    return importlib.import_module(f"{__name__}.{'session' if hasattr(model, 'session') else model.command}")
