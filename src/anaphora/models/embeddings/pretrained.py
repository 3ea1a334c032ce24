"""Vectors trained elsewhere, for the vocabulary of another model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.symbols import PAD, SPELLINGS
from anaphora.errors import DataError
from anaphora.files import clause, streamed
from anaphora.models.embeddings.vectors import WordVectors

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Pretrained:
    """A table of vectors for a vocabulary, and what of it was found."""

    matrix: Array
    """``(V, d)`` float32; what was not found is drawn at random, as wide-spread as what was; <pad> is zero."""
    known: Array
    """``(V,)`` bool: whether the vector is a trained one."""
    found: int
    missing: list[str]
    """Words without a vector; special symbols do not count."""

    def __str__(self) -> str:
        words = self.found + len(self.missing)
        return f"{self.found:,} of {words:,} words have vectors of width {self.matrix.shape[1]}"


def pretrained(
    source: str | Path | WordVectors, spellings: Sequence[str], *, width: int | None = None, seed: int = 0
) -> Pretrained:
    """The rows of ``source`` for each of ``spellings (V,)``, the symbols of a vocabulary in the order of their ids.

    source: a saved model of vectors, a word2vec or GloVe file (text, binary, .gz), or `WordVectors`. Of a file only
        what is needed stays in memory.
    spellings: the space that the library's tokenizers write before a word is passed over; a word that is not found
        as it is spelled is looked for in lower case.
    width: what the vectors must be wide; None: any.
    """
    plain = [spelling if i < len(SPELLINGS) else spelling.strip() for i, spelling in enumerate(spellings)]
    wanted = frozenset(form for word in plain[len(SPELLINGS) :] for form in (word, word.lower()) if form)
    vectors = source if isinstance(source, WordVectors) else read_any(source, wanted)
    name = "The vectors" if isinstance(source, WordVectors) else str(source)
    if width is not None and vectors.width != width:
        raise DataError(
            f"{name}: vectors of width {vectors.width} where {width} is wanted; set embedding={vectors.width}."
        )
    rows = np.full(len(plain), -1)
    for i, word in enumerate(plain[len(SPELLINGS) :], start=len(SPELLINGS)):
        rows[i] = vectors.ids.get(word, vectors.ids.get(word.lower(), -1))
    known = rows >= 0
    if not known.any():
        raise DataError(
            f"{name} holds none of the {len(plain)} words of the vocabulary; is it in the same language?"
        )
    found = vectors.matrix[rows[known]]
    spread = np.random.default_rng(seed).standard_normal((len(plain), vectors.width), np.float32)
    matrix = spread * np.float32(found.std())
    matrix[known] = found
    matrix[PAD] = 0.0
    missing = [word for i, word in enumerate(plain) if i >= len(SPELLINGS) and not known[i]]
    return Pretrained(matrix, known, int(known.sum()), missing)


def read_any(path: str | Path, only: frozenset[str] | None = None) -> WordVectors:
    """Vectors from a saved model or from a word2vec or GloVe file."""
    try:
        with streamed(path) as file:
            head = file.read(9)
    except OSError as error:
        reason = clause(error)
        raise DataError(f"{path} cannot be read: {reason}; check the path.") from None
    # A safetensors file begins with the size of its JSON head in eight bytes.
    if head[8:] == b"{" and head[5:8] == b"\0\0\0":
        return WordVectors.load(path)
    return WordVectors.read(path, only=only)
