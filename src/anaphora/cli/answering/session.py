"""Answers of every task with a session: its kinds read the file and write the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anaphora.cli.answering.response import Response, text_items
from anaphora.data.asked import is_blank
from anaphora.settings import build
from anaphora.tasks.bulk.windows import Item
from anaphora.tasks.bulk.worker import Answer, Asked


def asked(model: Any, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """The inputs of a file: lines of text or rows of a table, or the sequences of a file."""
    chosen = build(model.task().predicting, dict(options), owner="predict")
    batches = model.session.kinds.from_file(source, chosen.source_field)
    # where an answer has several lines, there is no row to write it beside
    return text_items(batches, beside=getattr(chosen, "top", 1) <= 1)


def answering(model: Any, options: Mapping[str, Any]) -> Answer:
    """One response for each input; that to an empty text stays empty."""
    build(model.task().predicting, dict(options), owner="predict")
    session = model.session
    output, textual = session.kinds.output, session.kinds.input.textual
    detailed = {**options, "details": True}

    def answer(asked: Asked) -> Iterator[Response]:
        found = session.answer([x for _, x in asked], detailed) if asked else ()
        for (number, x), result in zip(asked, found, strict=True):
            head = {"line": number, "input": x} if textual else {"line": number}
            if result is None:
                yield Response("", {**head, "output": None})
            else:
                text = output.text(result, number, options)
                yield Response(text, {**head, **output.record(result, options)})

    return answer


def read_inputs(model: Any, source: str, field: str | None) -> list[Any]:
    """All inputs of a file, empty lines left out."""
    batches = model.session.kinds.from_file(source, field)
    return [one.text for batch in batches for one in batch if not is_blank(one.text)]
