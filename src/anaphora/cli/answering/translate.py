"""Outputs for lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from anaphora.cli.answering.response import Response, output_response
from anaphora.data.asked import asked_batches
from anaphora.tasks.translate.estimator import Translator


def respond(model: Translator, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
    """One response for each line, in order; an empty line stays empty.

    With ``n_best`` above 1 each output is a line ``number⇥score⇥text``.
    """
    options = dict(options)
    field, many = options.pop("source_field", None), options.get("n_best", 1) > 1
    number = 0
    for asked in asked_batches(source, model._trained_on, field):
        texts = [one.text for one in asked if one.text.strip()]
        found = iter(model.search(texts, **options) if texts else [])
        for one in asked:
            number += 1
            outputs = next(found) if one.text.strip() else []
            response = output_response(number, {"input": one.text}, outputs, many=many)
            yield response if many else replace(response, text=one.with_answer(response.text))
