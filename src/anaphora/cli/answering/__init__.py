"""What ``anaphora predict`` prints: the values that each task returns, as text and as JSON."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from anaphora.cli.answering.response import Response
from anaphora.tasks.guarding import answers_checked


def respond(model: Any, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
    """The answers of a trained ``model`` to the file ``source`` (``-``: standard input), as they come.

    Raises a `DataError` for an input that cannot be used, and where a number of an answer is not finite.
    """
    home = importlib.import_module(f"{__name__}.{model.command}")
    return answers_checked(home.respond(model, source, options))
