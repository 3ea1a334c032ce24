"""Outputs for lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anaphora.cli.answering.response import Response, answers, output_response, text_items
from anaphora.data.asked import asked_batches
from anaphora.tasks.bulk.windows import Item
from anaphora.tasks.bulk.worker import Answer, Asked
from anaphora.tasks.translate.estimator import Translator


def asked(model: Translator, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """The lines of a file, or the rows of a table."""
    batches = asked_batches(source, model.recipe_.trained_on, options.get("source_field"))
    return text_items(batches, beside=options.get("n_best", 1) == 1)


def answering(model: Translator, options: Mapping[str, Any]) -> Answer:
    """One response for each text; that to an empty one is empty.

    With ``n_best`` above 1 each output is a line ``number⇥score⇥text``.
    """
    given = {key: value for key, value in options.items() if key != "source_field"}
    many = given.get("n_best", 1) > 1

    def answer(asked: Asked) -> Iterator[Response]:
        outputs = answers(asked, lambda texts: model.search(texts, **given))
        for (number, text), found in zip(asked, outputs, strict=True):
            yield output_response(number, {"input": text}, found or [], many=many)

    return answer
