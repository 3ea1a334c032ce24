"""How probable lines are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anaphora.cli.answering.response import Response, answers
from anaphora.data.asked import asked_batches, line_batches
from anaphora.tasks.bulk.windows import Item, item
from anaphora.tasks.bulk.worker import Answer, Asked
from anaphora.tasks.language.estimator import LanguageModel


def asked(model: LanguageModel, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """The lines of a file; of a table, if the model was trained on one, those of its texts."""
    learnt = model.recipe_.trained_on
    for lines in _lines_of(source, learnt.get("of", learnt)):
        yield [item(line) for line in lines]


def answering(model: LanguageModel, options: Mapping[str, Any]) -> Answer:
    """For each line ``log p⇥perplexity⇥line``; an empty line has no answer but an empty line."""

    def answer(asked: Asked) -> Iterator[Response]:
        for (number, line), one in zip(asked, answers(asked, model.read), strict=True):
            head = {"line": number, "input": line}
            if one is None:
                yield Response("", {**head, "log_prob": None, "perplexity": None})
                continue
            record = {"log_prob": one.log_prob, "symbols": one.symbols, "perplexity": one.perplexity}
            yield Response(f"{one.log_prob:.4f}\t{one.perplexity:.4f}\t{line}", {**head, **record})

    return answer


def _lines_of(source: str, learnt: Mapping[str, Any]) -> Iterator[list[str]]:
    if learnt.get("kind") != "column" or source == "-":
        yield from line_batches(source)
        return
    for batch in asked_batches(source, learnt):
        yield [line for one in batch for line in one.text.split("\n")]
