"""Classes of texts and of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from anaphora.cli.answering.response import Response
from anaphora.data.asked import asked_batches
from anaphora.data.asked_vectors import sequence_batches
from anaphora.tasks.classify.estimator import Classifier
from anaphora.tasks.classify.objective import spell


def respond(model: Classifier, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
    """One response for each line of text, in order (an empty line stays empty), or for each sequence of a file.

    With ``top`` above 1 each class is a line ``number⇥probability⇥label``.
    """
    model._check_trained()
    chosen = model._options(**options)
    number = 0
    if model.inputs_.kind == "vectors":
        for sequences in sequence_batches(source, model.settings_.scan):
            for scores in model._scores(sequences) if sequences else ():
                number += 1
                yield _response(model, number, None, scores[None], chosen)
        return
    for asked in asked_batches(source, model._trained_on, chosen["source_field"]):
        filled = [one.text for one in asked if one.text.strip()]
        rows = iter(model._scores(filled) if filled else [])
        for one in asked:
            number += 1
            if not one.text.strip():
                yield Response(one.with_answer(""), {"line": number, "input": one.text, "output": None})
                continue
            found = _response(model, number, one.text, next(rows)[None], chosen)
            yield found if chosen["top"] > 1 else replace(found, text=one.with_answer(found.text))


def _response(
    model: Classifier, number: int, text: str | None, scores: Any, chosen: Mapping[str, Any]
) -> Response:
    targets = model.targets_
    found = targets.answers(scores, chosen["threshold"])
    head = {"line": number} | ({} if text is None else {"input": text})
    (answer,) = spell(targets, found)
    if targets.kind == "number":
        return Response(answer, {**head, "output": float(found[0])})
    (shares,) = targets.probabilities(scores)
    best = np.argsort(-shares, kind="stable")[: max(chosen["top"], 1)].tolist()
    given: Any = (
        answer
        if targets.kind == "class"
        else [n for n, on in zip(targets.names, found[0], strict=True) if on]
    )
    record = {
        **head,
        "output": given,
        "probabilities": {name: float(p) for name, p in zip(targets.names, shares, strict=True)},
        "top": [{"label": targets.names[i], "probability": float(shares[i])} for i in best],
    }
    if chosen["top"] > 1:
        answer = "\n".join(f"{number}\t{shares[i]:.4f}\t{targets.names[i]}" for i in best)
    return Response(answer, record)
