"""How probable lines are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anaphora.cli.answering.response import Response
from anaphora.data.asked import asked_batches
from anaphora.data.streams import line_batches
from anaphora.tasks.language.estimator import LanguageModel


def respond(model: LanguageModel, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
    """For each line ``log p⇥perplexity⇥line``, in order; an empty line has no answer but an empty line. Of a table, if the model
    was trained on one, the lines are those of its texts."""
    learnt = model._trained_on
    number = 0
    for lines in _lines_of(source, learnt.get("of", learnt)):
        asked = [line for line in lines if line.strip()]
        found = iter(model.read(asked) if asked else [])
        for line in lines:
            number += 1
            if not line.strip():
                yield Response("", {"line": number, "input": line, "log_prob": None, "perplexity": None})
                continue
            one = next(found)
            yield Response(
                f"{one.log_prob:.4f}\t{one.perplexity:.4f}\t{line}",
                {
                    "line": number,
                    "input": line,
                    "log_prob": one.log_prob,
                    "symbols": one.symbols,
                    "perplexity": one.perplexity,
                },
            )


def _lines_of(source: str, learnt: Mapping[str, Any]) -> Iterator[list[str]]:
    if learnt.get("kind") != "column" or source == "-":
        yield from line_batches(source)
        return
    for batch in asked_batches(source, learnt):
        yield [line for one in batch for line in one.text.split("\n")]
