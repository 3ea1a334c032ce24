"""Words and their vectors: neighbours, analogies, evaluation, files."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.files import lines_of
from anaphora.errors import AnaphoraError, DataError, RunError
from anaphora.files import parse_json
from anaphora.files.schemas import checked
from anaphora.kinds.vector import unit
from anaphora.models.classical.arrays import load_arrays, reading, save_arrays
from anaphora.models.embeddings import formats

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
        return similarity(self.units, self.ids, path, lowercase=lowercase)

    def evaluate_analogies(
        self, path: str | Path, *, lowercase: bool = False, vocab_size: int | None = None
    ) -> dict[str, Any]:
        """Ask all questions of a file ``a b c d`` (``: name`` opens a section): is d nearest to b − a + c?

        Returns ``accuracy`` (a, b and c left out of the answers), ``honest`` (all words are possible answers),
        ``coverage``, ``questions``, ``found``, and the same of each section under ``sections``. Questions with an
        unknown word are left out. ``vocab_size``: only that many words, the first ones, are asked and answered.
        """
        return analogies(self.units, self.ids, path, lowercase=lowercase, vocab_size=vocab_size)

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


def pack(words: Sequence[str]) -> Array:
    """Words as bytes in an array, which may be as long as it likes."""
    return np.frombuffer(json.dumps(list(words), ensure_ascii=False).encode(), dtype=np.uint8)


def unpack(data: Array, path: str | Path) -> list[str]:
    """What `pack` was given."""
    try:
        return checked(list[str], parse_json(data.tobytes()))
    except ValueError as error:
        raise RunError(f"{path}: damaged (its words cannot be read: {error}); use another copy.") from None


# ----------------------------------------------------------------------------
# Neighbours and clusters of unit vectors.

Vectors = np.ndarray[Any, np.dtype[np.float32]]
_ROWS = 512
_ROUNDS = 100


def neighbours(queries: Vectors, vectors: Vectors, k: int) -> list[list[tuple[int, float]]]:
    """For each of ``queries`` ``(n, size)`` the ``k`` rows of ``vectors`` of the highest cosine, the best first."""
    if k < 1:
        raise DataError(f"{k} neighbours cannot be found; ask for 1 or more.")
    found: list[list[tuple[int, float]]] = []
    for start in range(0, len(queries), _ROWS):
        scores = queries[start : start + _ROWS] @ vectors.T
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(scores, order, 1)
        found += [list(zip(*pair, strict=True)) for pair in zip(order.tolist(), best.tolist(), strict=True)]
    return found


def spherical_kmeans(vectors: Vectors, k: int, *, seed: int) -> tuple[list[int], Vectors, float]:
    """Clusters whose centres are the directions of the means of their vectors (Dhillon 2001), begun as k-means++.

    vectors ``(n, size)`` -> the cluster of each (the largest is 0), centres ``(k, size)``, the mean cosine with the centre.
    """
    if not 1 <= k <= len(vectors):
        raise DataError(f"{len(vectors)} inputs cannot make {k} clusters; ask for 1 to {len(vectors)}.")
    draw = np.random.RandomState(seed)
    centres = vectors[[draw.randint(len(vectors))]]
    while len(centres) < k:
        far = np.maximum(1.0 - (vectors @ centres.T).max(1).astype(np.float64), 0.0)
        share = far / far.sum() if far.sum() > 0 else np.full(len(far), 1 / len(far))
        centres = np.concatenate((centres, vectors[[draw.choice(len(vectors), p=share)]]))
    labels = np.full(len(vectors), -1)
    for _ in range(_ROUNDS):
        now = (vectors @ centres.T).argmax(1)
        if (now == labels).all():
            break
        labels = now
        sums = np.zeros_like(centres, dtype=np.float64)
        np.add.at(sums, labels, vectors)
        filled = np.bincount(labels, minlength=k) > 0  # an empty cluster keeps its centre
        centres = np.where(filled[:, None], unit(sums), centres)
    order = np.argsort(-np.bincount(labels, minlength=k), kind="stable")
    ranked = np.argsort(order, kind="stable")[labels]
    return ranked.tolist(), centres[order], float((vectors * centres[labels]).sum(1).mean())


# ----------------------------------------------------------------------------
# How good vectors are: similarities beside people's judgements, and analogies.

BATCH = 256
"""Questions answered in one matrix product."""


def ranks(values: Array) -> Array:
    """1 for the smallest … n for the largest of ``values (n,)``; equal ones share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which])


def spearman(a: Array, b: Array) -> float:
    """The correlation of the ranks of two lists of numbers ``(n,)``; NaN where one of them does not vary."""
    if len(a) < 2:
        return float("nan")
    x, y = ranks(np.asarray(a)), ranks(np.asarray(b))
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale else float("nan")


def similarity(units: Array, ids: Mapping[str, int], path: str | Path, *, lowercase: bool) -> dict[str, Any]:
    """See `WordVectors.evaluate_similarity`; ``units (V, d)`` have length 1."""
    rows, judged, pairs = [], [], 0
    for number, line in _lines(path):
        fields = line.lower().split() if lowercase else line.split()
        fields = [f for part in fields for f in part.split(",") if f] if len(fields) < 3 else fields
        try:
            a, b, score = fields[0], fields[1], float(fields[2])
        except (IndexError, ValueError):
            if pairs == 0 and number == 1:
                continue  # a line of headings
            raise DataError(f"{path}:{number}: not two words and a number; correct the line.") from None
        if not np.isfinite(score):
            raise DataError(f"{path}:{number}: {fields[2]} is not a judgement; correct the line.")
        pairs += 1
        if a in ids and b in ids:
            rows.append((ids[a], ids[b]))
            judged.append(score)
    if not pairs:
        raise DataError(f"{path} holds no pair of words; give lines of two words and a number.")
    left, right = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    cosines = (units[left] * units[right]).sum(axis=1)
    found = spearman(cosines, np.array(judged))
    return {"spearman": found, "coverage": len(rows) / pairs, "pairs": pairs, "found": len(rows)}


@dataclass
class _Section:
    questions: int = 0
    rows: list[tuple[int, ...]] = field(default_factory=list)
    """Of a, b, c and d, where all four are known."""
    right: int = 0
    honest: int = 0

    def figures(self) -> dict[str, Any]:
        found = len(self.rows)
        share = (lambda n: n / found) if found else (lambda n: float("nan"))
        return {
            "accuracy": share(self.right),
            "honest": share(self.honest),
            "coverage": found / self.questions if self.questions else 0.0,
            "questions": self.questions,
            "found": found,
        }


def analogies(
    units: Array, ids: Mapping[str, int], path: str | Path, *, lowercase: bool, vocab_size: int | None
) -> dict[str, Any]:
    """See `WordVectors.evaluate_analogies`; ``units (V, d)`` have length 1."""
    units = units[:vocab_size]
    sections: dict[str, _Section] = {}
    name = "all"
    for number, line in _lines(path):
        words = (line.lower() if lowercase else line).split()
        if words[0].startswith(":"):
            name = line.strip().removeprefix(":").strip() or "all"
            continue
        if len(words) != 4:
            raise DataError(f"{path}:{number}: {len(words)} words where a question has 4; correct the line.")
        section = sections.setdefault(name, _Section())
        section.questions += 1
        rows = tuple(ids.get(word, len(units)) for word in words)
        if max(rows) < len(units):
            section.rows.append(rows)
    if not sections:
        raise DataError(f"{path} holds no question; give lines of four words.")
    for section in sections.values():
        for begin in range(0, len(section.rows), BATCH):
            right, honest = _answers(units, np.array(section.rows[begin : begin + BATCH]))
            section.right, section.honest = section.right + right, section.honest + honest
    whole = _Section()
    for section in sections.values():
        whole.questions, whole.right = whole.questions + section.questions, whole.right + section.right
        whole.honest, whole.rows = whole.honest + section.honest, whole.rows + section.rows
    return {**whole.figures(), "sections": {name: one.figures() for name, one in sections.items()}}


def _answers(units: Array, rows: Array) -> tuple[int, int]:
    """How many of the questions ``rows (n, 4)`` are answered rightly, without and with a, b, c as answers."""
    a, b, c, d = rows.T
    scores = (units[b] - units[a] + units[c]) @ units.T
    honest = int((scores.argmax(axis=1) == d).sum())
    for asked in (a, b, c):
        scores[np.arange(len(rows)), asked] = -np.inf
    return int((scores.argmax(axis=1) == d).sum()), honest


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines that are neither blank nor a remark (#)."""
    for number, line in lines_of(path):
        if line.strip() and not re.match(r"\s*#", line):
            yield number, line
