"""What the tasks share when they are looked into."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.symbols import SPELLINGS
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError
from anaphora.nn.embedding import Embedding
from anaphora.probe.noted import as_numpy
from anaphora.probe.trace import Trace
from anaphora.probe.vectors import probe_vectors


def facts_of(estimator: Any, text: str) -> dict[str, Any]:
    """What a trace says of the model it comes from."""
    settings = estimator.settings_
    return {"task": estimator.command, "preset": settings.model, "seed": settings.seed, "text": text}


def symbol_vectors(estimator: Any, embedding: Embedding, tokenizer: Tokenizer) -> Trace:
    """The vectors of a model's symbols without the special ones, the first (which are the commonest) of them."""
    first = len(SPELLINGS)
    names = tokenizer.pieces(list(range(first, tokenizer.size)))
    if len(names) < 2:
        raise DataError("the model knows fewer than two symbols, so there is nothing to compare.")
    return probe_vectors(names, as_numpy(embedding.weight)[first:], facts=facts_of(estimator, ""))


def numbers(text: str) -> NDArray[np.float64]:
    """Numbers that were typed, (time, columns): a line for each step, columns with commas or spaces between."""
    rows = []
    for number, line in enumerate(filter(str.strip, text.replace(";", "\n").splitlines()), start=1):
        try:
            rows.append([float(word) for word in line.replace(",", " ").split()])
        except ValueError:
            raise DataError(
                f"line {number} of the input is not numbers; type a line for each step, with spaces between columns."
            ) from None
    if not rows or len({len(row) for row in rows}) > 1:
        raise DataError("the input must be lines of numbers, each with as many as the others.")
    return np.array(rows)
