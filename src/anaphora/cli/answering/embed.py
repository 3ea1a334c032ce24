"""Vectors of texts and of sequences, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from anaphora.cli.answering.response import Response
from anaphora.data.asked import asked_batches
from anaphora.data.asked_vectors import sequence_batches
from anaphora.tasks.embed.estimator import Embedder


def respond(model: Embedder, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
    """One vector for each line of text, row of a table or sequence of a file; an empty line stays empty."""
    number = 0
    if model._inputs() != "text":
        for sequences in sequence_batches(source, "rows"):
            for vector in model.predict(sequences) if sequences else ():
                number += 1
                yield Response(_spelled(vector), {"line": number, "output": vector.tolist()})
        return
    for asked in asked_batches(source, model._trained_on, options.get("source_field")):
        filled = [one.text for one in asked if one.text.strip()]
        vectors = iter(model.predict(filled) if filled else ())
        for one in asked:
            number += 1
            head = {"line": number, "input": one.text}
            if not one.text.strip():
                yield Response(one.with_answer(""), {**head, "output": None})
                continue
            vector = next(vectors)
            yield Response(one.with_answer(_spelled(vector)), {**head, "output": vector.tolist()})


def read_inputs(model: Embedder, source: str, field: str | None) -> list[Any]:
    """All inputs of a file, empty lines left out; an ``.npy`` file given to a model of texts holds vectors of inputs."""
    if model._inputs() != "text":
        return [x for batch in sequence_batches(source, "rows") for x in batch]
    rows = (one.text for batch in asked_batches(source, model._trained_on, field) for one in batch)
    return [text for text in rows if text.strip()]


def _spelled(vector: np.ndarray[Any, Any]) -> str:
    return " ".join(f"{value:.6g}" for value in vector)
