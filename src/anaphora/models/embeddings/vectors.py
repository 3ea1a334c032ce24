"""Words and their vectors: neighbours, analogies, evaluation, files."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.errors import AnaphoraError, DataError, RunError
from anaphora.files import parse_json
from anaphora.files.schemas import checked
from anaphora.models.classical.arrays import load_arrays, reading, save_arrays
from anaphora.models.embeddings import evaluation, formats

Array = np.ndarray[Any, Any]

KIND = "set of word vectors"
"""The kind of a saved file, the same for every model."""
_LOOKED_THROUGH = 20_000
"""Words among which a misspelled one is looked for, the most frequent first."""


class WordVectors:
    """A vocabulary and a matrix ``(V, d)``, float32, one row per word; frequent words first where that is known.

        similarity(a, b) = cos(a, b) = a · b / (‖a‖ ‖b‖)

    ``vectors["king"]`` is one vector ``(d,)``, ``vectors[["king", "queen"]]`` are several ``(n, d)``.

    Args:
        words: the vocabulary, each word once.
        matrix: the vectors ``(V, d)``, finite numbers.

    Raises a `DataError` where the two do not fit together.

    >>> vectors = an.WordVectors(["cat", "dog", "car"], [[1, 0.1], [1, 0], [0, 1]])
    >>> vectors.most_similar("cat", n=1)[0][0], round(vectors.similarity("dog", "car"), 2)
    ('dog', 0.0)
    """

    def __init__(self, words: Iterable[str], matrix: Array):
        self.words = list(words)
        self.matrix = np.ascontiguousarray(matrix, dtype=np.float32)
        if self.matrix.ndim != 2 or len(self.matrix) != len(self.words) or not self.matrix.size:
            raise DataError(
                f"{len(self.words)} words do not go with vectors of shape {self.matrix.shape}; "
                "give a matrix with one row per word."
            )
        self.ids = {word: i for i, word in enumerate(self.words)}
        if len(self.ids) < len(self.words):
            twice = next(w for i, w in enumerate(self.words) if self.ids[w] != i)
            raise DataError(f"The word {twice!r} is there twice; give each word one vector.")
        if not np.isfinite(self.matrix).all():
            bad = self.words[int(np.flatnonzero(~np.isfinite(self.matrix).all(axis=1))[0])]
            raise DataError(f"The vector of {bad!r} holds a number that is not finite; leave that word out.")
        self._units: Array | None = None

    @property
    def width(self) -> int:
        """d, the length of a vector."""
        return int(self.matrix.shape[1])

    @property
    def units(self) -> Array:
        """The vectors divided by their lengths, ``(V, d)``; zeros stay zeros."""
        if self._units is None:
            self._units = unit(self.matrix)
        return self._units

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.ids

    def __getitem__(self, word: str | Sequence[str]) -> Array:
        return self.matrix[self.row(word) if isinstance(word, str) else [self.row(w) for w in word]]

    def __repr__(self) -> str:
        return f"WordVectors({len(self):,} words, width {self.width})"

    def row(self, word: str) -> int:
        """The row of a word; an error with a suggestion where there is none."""
        if word not in self.ids:
            near = difflib.get_close_matches(str(word), self.words[:_LOOKED_THROUGH], n=1)
            hint = f"did you mean {near[0]}?" if near else "check its spelling, or train on more text."
            raise AnaphoraError(f"{word!r} is not among the {len(self):,} words; {hint}")
        return self.ids[word]

    def similarity(self, a: str, b: str) -> float:
        """cos(a, b), from −1 to 1."""
        return float(self.units[self.row(a)] @ self.units[self.row(b)])

    def most_similar(self, word: str | Array, n: int = 10) -> list[tuple[str, float]]:
        """The ``n`` words of highest similarity to a word (itself left out) or to a vector ``(d,)``."""
        if isinstance(word, str):
            here = self.row(word)
            return self.nearest(self.units[here], n, without=[here])
        vector = np.asarray(word, dtype=np.float32)
        if vector.shape != (self.width,):
            raise DataError(
                f"A vector of shape {vector.shape} has no neighbours here; give {self.width} numbers."
            )
        return self.nearest(unit(vector[None])[0], n)

    def analogy(
        self, a: str, b: str, c: str, n: int = 10, *, exclude: bool = True
    ) -> list[tuple[str, float]]:
        """``a`` is to ``b`` as ``c`` is to …: the words nearest to b − a + c, each of length 1 before they are added.

        ``analogy("man", "king", "woman")`` is king − man + woman. By custom the three words themselves are left
        out, without which one of them would often come first; ``exclude=False`` lets them in.
        """
        rows = [self.row(word) for word in (a, b, c)]
        wanted = self.units[rows[1]] - self.units[rows[0]] + self.units[rows[2]]
        return self.nearest(unit(wanted[None])[0], n, without=rows if exclude else [])

    def nearest(self, direction: Array, n: int, without: Sequence[int] = ()) -> list[tuple[str, float]]:
        """The ``n`` words of highest cosine with ``direction (d,)``, which has length 1."""
        if n < 1:
            raise AnaphoraError(f"{n} neighbours cannot be found; ask for 1 or more.")
        scores = self.units @ direction
        scores[list(without)] = -np.inf
        n = min(n, len(self) - len(set(without)))
        found = np.argpartition(-scores, n - 1)[:n] if n else np.zeros(0, np.int64)
        found = found[np.lexsort((found, -scores[found]))]
        return [(self.words[i], float(scores[i])) for i in found.tolist()]

    def evaluate_similarity(self, path: str | Path, *, lowercase: bool = False) -> dict[str, Any]:
        """Compare cosines with the judgements of people: ``word⇥word⇥number`` lines (tabs, commas or blanks).

        Returns ``spearman`` (rank correlation; NaN below two pairs), ``coverage`` (share of pairs with both words
        known; the others are left out), ``pairs`` and ``found``.
        """
        return evaluation.similarity(self.units, self.ids, path, lowercase=lowercase)

    def evaluate_analogies(
        self, path: str | Path, *, lowercase: bool = False, vocab_size: int | None = None
    ) -> dict[str, Any]:
        """Ask all questions of a file ``a b c d`` (``: name`` opens a section): is d nearest to b − a + c?

        Returns ``accuracy`` (a, b and c left out of the answers), ``honest`` (all words are possible answers),
        ``coverage``, ``questions``, ``found``, and the same of each section under ``sections``. Questions with an
        unknown word are left out. ``vocab_size``: only that many words, the first ones, are asked and answered.
        """
        return evaluation.analogies(self.units, self.ids, path, lowercase=lowercase, vocab_size=vocab_size)

    def write(self, path: str | Path, *, binary: bool | None = None) -> None:
        """Write a word2vec file, text or binary (by default binary if the name ends in .bin; also .gz)."""
        formats.write(path, self.words, self.matrix, binary=binary)

    @classmethod
    def read(cls, path: str | Path, *, only: Iterable[str] | None = None) -> WordVectors:
        """Vectors from a word2vec file, text or binary, or a GloVe text file (no header); also .gz.

        ``only``: other words are passed over, so that a file larger than memory can be read from.
        """
        return cls(*formats.read(path, None if only is None else frozenset(only)))

    def save(self, path: str | Path) -> None:
        """Write words and vectors into one safetensors file with a checksum."""
        save_arrays(path, KIND, {"vectors": self.matrix, "words": pack(self.words)}, {"model": "WordVectors"})

    @classmethod
    def load(cls, path: str | Path) -> WordVectors:
        """The vectors that `save` wrote, of this class or of any model of vectors."""
        arrays, _ = load_arrays(path, KIND)
        with reading(path):
            return cls(unpack(arrays["words"], path), arrays["vectors"])


def unit(matrix: Array) -> Array:
    """Rows ``(n, d)`` divided by their lengths; zeros stay zeros."""
    # in float64, row by row: the squares of large or small float32 numbers are beyond float32
    lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))[:, None]
    return np.asarray(matrix / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def pack(words: Sequence[str]) -> Array:
    """Words as bytes in an array, which may be as long as it likes."""
    return np.frombuffer(json.dumps(list(words), ensure_ascii=False).encode(), dtype=np.uint8)


def unpack(data: Array, path: str | Path) -> list[str]:
    """What `pack` was given."""
    try:
        return checked(list[str], parse_json(data.tobytes()))
    except ValueError as error:
        raise RunError(f"{path}: damaged (its words cannot be read: {error}); use another copy.") from None
