"""Vectors of texts and of sequences, a line each."""

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
from anaphora.tasks.embed.estimator import Embedder


def asked(model: Embedder, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """The lines of text, rows of a table or sequences of a file."""
    model._check_trained()
    if isinstance(model.inputs_, VectorInputs):
        return (list(map(item, some)) for some in sequence_batches(source, model.inputs_, "rows"))
    return text_items(asked_batches(source, model.recipe_.trained_on, options.get("source_field")))


def answering(model: Embedder, options: Mapping[str, Any]) -> Answer:
    """One vector for each input; an empty line stays empty."""

    def of_vectors(asked: Asked) -> Iterator[Response]:
        vectors = model.predict([x for _, x in asked]) if asked else ()
        for (number, _), vector in zip(asked, vectors, strict=True):
            yield Response(_spelled(vector), {"line": number, "output": vector.tolist()})

    def of_texts(asked: Asked) -> Iterator[Response]:
        for (number, text), vector in zip(asked, answers(asked, model.predict), strict=True):
            head = {"line": number, "input": text}
            if vector is None:
                yield Response("", {**head, "output": None})
            else:
                yield Response(_spelled(vector), {**head, "output": vector.tolist()})

    return of_vectors if model._inputs() != "text" else of_texts


def read_inputs(model: Embedder, source: str, field: str | None) -> list[Any]:
    """All inputs of a file, empty lines left out; an ``.npy`` file given to a model of texts holds vectors of inputs."""
    model._check_trained()
    if isinstance(model.inputs_, VectorInputs):
        return [x for batch in sequence_batches(source, model.inputs_, "rows") for x in batch]
    rows = (one.text for batch in asked_batches(source, model.recipe_.trained_on, field) for one in batch)
    return [text for text in rows if text.strip()]


def _spelled(vector: np.ndarray[Any, Any]) -> str:
    return " ".join(f"{value:.6g}" for value in vector)
