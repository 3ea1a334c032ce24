"""Classes of texts and of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from anaphora.cli.answering.response import Response, answers, text_items
from anaphora.data.asked import asked_batches
from anaphora.data.asked_vectors import sequence_batches
from anaphora.data.labelled_inputs import VectorInputs
from anaphora.tasks.bulk.windows import Item, item
from anaphora.tasks.bulk.worker import Answer, Asked
from anaphora.tasks.classify.estimator import Classifier
from anaphora.tasks.classify.objective import spell


def asked(model: Classifier, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """The lines of text or the rows of a table, or the sequences of a file."""
    model._check_trained()
    chosen = model._options(**options)
    if isinstance(model.inputs_, VectorInputs):
        return (
            list(map(item, some)) for some in sequence_batches(source, model.inputs_, model.settings_.scan)
        )
    batches = asked_batches(source, model.recipe_.trained_on, chosen["source_field"])
    return text_items(batches, beside=chosen["top"] <= 1)


def answering(model: Classifier, options: Mapping[str, Any]) -> Answer:
    """One response for each text (an empty one stays empty) or sequence.

    With ``top`` above 1 each class is a line ``number⇥probability⇥label``.
    """
    model._check_trained()
    chosen = model._options(**options)

    def of_vectors(asked: Asked) -> Iterator[Response]:
        if asked:
            for (number, _), scores in zip(asked, model._scores([x for _, x in asked]), strict=True):
                yield _response(model, number, None, scores[None], chosen)

    def of_texts(asked: Asked) -> Iterator[Response]:
        for (number, text), scores in zip(asked, answers(asked, model._scores), strict=True):
            if scores is None:
                yield Response("", {"line": number, "input": text, "output": None})
            else:
                yield _response(model, number, text, scores[None], chosen)

    return of_vectors if model.inputs_.kind == "vectors" else of_texts


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
    record = {
        **head,
        "output": targets.labelled(found)[0],
        "probabilities": {name: float(p) for name, p in zip(targets.names, shares, strict=True)},
        "top": [{"label": targets.values[i], "probability": float(shares[i])} for i in best],
    }
    if chosen["top"] > 1:
        answer = "\n".join(f"{number}\t{shares[i]:.4f}\t{targets.names[i]}" for i in best)
    return Response(answer, record)
