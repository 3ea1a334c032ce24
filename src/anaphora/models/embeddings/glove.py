"""GloVe (Pennington et al. 2014): vectors whose products are the logarithms of how often words stand together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.errors import DataError
from anaphora.files.writing import scratch_file
from anaphora.models.classical.ngram.counts import chunks
from anaphora.models.embeddings.glove_updates import EMPTY, UNMIX, count_pairs, fit_pairs, move_pairs
from anaphora.models.embeddings.model import VectorModel
from anaphora.models.embeddings.text import FIRST, Tally, Text, in_order
from anaphora.models.embeddings.windows import aligned, padded

Array = np.ndarray[Any, Any]

BLOCK = 1 << 15
"""Pairs a thread works through at a time."""
NAMES = ("rows", "columns", "row_bias", "column_bias")


class GloVe(VectorModel):
    """Weighted least squares on the counts X_ij of words that stand near each other, by AdaGrad.

        J = ½ Σ_ij f(X_ij) (w_i · w̃_j + b_i + b̃_j − log X_ij)²      f(x) = min(1, (x / x_max)^power)

    A pair k words apart adds 1/k to its count. The vector of a word is w_i + w̃_i.

    Args:
        embedding: width of the vectors.
        window: words on each side that are counted.
        x_max: counts from here on weigh 1.
        power: how fast the weight of smaller ones falls.
        min_count: rarer words are taken out of the text before anything else.
        vocab_size: so many words, the most frequent ones, are kept. None: all.
        epochs: times the counts are gone through, each time in another order.
        lr: learning rate of AdaGrad.
        lowercase: whether words are lower-cased.
        phrases: how often neighbours are joined to phrases first (see `Phrases`).
        seed: with one worker, the same seed and text give the same vectors to the last bit.
        workers: threads that train on the same vectors without waiting for each other.

    >>> model = an.GloVe(8, min_count=1, epochs=2).fit(["the king rules", "the queen rules"] * 9)
    >>> model["king"].shape
    (8,)
    """

    def __init__(
        self,
        embedding: int = 100,
        *,
        window: int = 10,
        x_max: float = 10.0,
        power: float = 0.75,
        min_count: int = 5,
        vocab_size: int | None = None,
        epochs: int = 25,
        lr: float = 0.05,
        lowercase: bool = False,
        phrases: int = 0,
        seed: int = 0,
        workers: int = 1,
    ):
        self.window, self.x_max, self.power, self.lr = window, x_max, power, lr
        super().__init__(locals())

    def _checks(self) -> list[tuple[bool, str]]:
        return [
            (
                not (isinstance(self.window, int) and 1 <= self.window <= 1000),
                f"window must be from 1 to 1000, not {self.window}.",
            ),
            (not self.x_max > 0, f"x_max must be above 0, not {self.x_max}."),
            (not 0 <= self.power <= 2, f"power must be from 0 to 2, not {self.power}."),
            (not 0 < self.lr <= 10, f"lr must be above 0 and at most 10, not {self.lr}."),
        ]

    def _train(self, text: Text, tally: Tally) -> None:
        found = self._counted(text)
        words = len(text.words)
        random = np.random.default_rng(self.seed)
        rows, columns = aligned(words, self.embedding), aligned(words, self.embedding)
        for matrix in (rows, columns):
            matrix[:, : self.embedding] = (random.random((words, self.embedding)) - 0.5) / self.embedding
        none = np.zeros(words, np.float32)
        self.weights = dict(zip(NAMES, (rows, columns, none, none.copy()), strict=True))
        seen = [np.ones_like(weight) for weight in self.weights.values()]
        tally.size = len(found.pairs)
        for epoch in range(self.epochs):
            tally.begin_epoch()
            order = np.random.default_rng((self.seed, epoch)).permutation(-(-len(found.pairs) // BLOCK))
            for pairs, terms, loss in self._run(found, order.tolist(), seen, self.lr, epoch):
                tally.add(pairs, terms, loss)
            tally.end_epoch()

    def _counted(self, text: Text) -> Cooccurrences:
        found = count_cooccurrences(text, self.window, spill=self._spill)
        if not len(found.pairs):
            raise DataError("No two words of the text that are known stand together; give longer sentences.")
        return found

    def _run(
        self, found: Cooccurrences, order: list[int], seen: list[Array], lr: float, epoch: int
    ) -> Iterator[tuple[int, int, float]]:
        weights = [self.weights[name] for name in NAMES]

        def work(block: int) -> tuple[int, int, float]:
            pairs = np.random.default_rng((self.seed, epoch, block)).permutation(
                found.pairs[block * BLOCK : (block + 1) * BLOCK]
            )
            columns = [np.ascontiguousarray(pairs[name]) for name in ("row", "column", "count")]
            arguments: list[Any] = [*columns, *weights, *seen, self.x_max, self.power, lr]
            terms, loss = fit_pairs(*arguments)
            return len(pairs), int(terms), float(loss)

        return in_order(work, order, self.workers)

    def _shapes(self, words: int) -> dict[str, tuple[int, ...]]:
        rows = (words, padded(self.embedding))
        return dict(zip(NAMES, (rows, rows, (words,), (words,)), strict=True))

    def _vectors(self) -> Array:
        return (self.weights["rows"] + self.weights["columns"])[:, : self.embedding]

    def _score(self, text: Text) -> dict[str, float]:
        """Mean weighted squared error over the pairs that occur in the text."""
        found = self._counted(text)
        seen = [np.ones_like(self.weights[name]) for name in NAMES]
        blocks = list(range(-(-len(found.pairs) // BLOCK)))
        _, terms, losses = zip(*self._run(found, blocks, seen, 0.0, 0), strict=True)
        return {"loss": sum(losses) / sum(terms), "pairs": float(len(found.pairs))}


# ----------------------------------------------------------------------------
# How often words stand near each other, counted in a bounded piece of memory, the rest on disk.

SLOTS = 1 << 25
"""Of the largest table, 16 bytes each; what does not fit is sorted and put on disk."""
PART = 1 << 22
"""Pairs merged at a time."""
_PAIR = np.dtype([("mixed", np.uint64), ("weight", np.float64)])
COUNT = np.dtype([("row", np.int32), ("column", np.int32), ("count", np.float32)])


@dataclass(frozen=True)
class Cooccurrences:
    """X_ij = X_ji = Σ 1/distance over all places where i and j stand at most a window apart, for i ≤ j.

    ``pairs (n,)`` are records of row i, column j and count, in memory or in a nameless file, in an order that
    looks random but depends on the pairs alone.
    """

    pairs: Array
    words: int

    def dense(self) -> Array:
        """All of X, ``(V, V)`` float64: for small vocabularies."""
        whole = np.zeros((self.words, self.words))
        whole[self.pairs["row"], self.pairs["column"]] = self.pairs["count"]
        whole[self.pairs["column"], self.pairs["row"]] = self.pairs["count"]
        return whole


def count_cooccurrences(
    text: Text, window: int, *, spill: Path | None = None, slots: int = SLOTS
) -> Cooccurrences:
    """Count the pairs of ``text``; rare words are taken out of it first, and sentences are kept apart.

    Where more pairs are found than ``slots`` hold, sorted runs of them go to nameless files of the folder ``spill``
    (the system's for temporary files by default) and are merged at the end.
    """
    words = len(text.words)
    size = min(1 << 16, slots)
    keys, weights = np.full(size, EMPTY), np.zeros(size)
    history, held, used = np.zeros(window, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64)
    runs: list[Array] = []
    for part in chunks(len(text.ids)):
        ids, done = np.subtract(text.ids[part], FIRST, dtype=np.int32), 0
        while True:
            done = count_pairs(ids, done, words, history, held, keys, weights, used)
            if done == len(ids):
                break
            if len(keys) < slots:
                larger = np.full(2 * len(keys), EMPTY), np.zeros(2 * len(keys))
                move_pairs(keys, weights, *larger)
                keys, weights = larger
            else:
                runs.append(_on_disk(_sorted(keys, weights), spill))
                keys[:], used[0] = EMPTY, 0
    runs.append(_sorted(keys, weights))
    return Cooccurrences(_merged(runs, words, spill), words)


def _sorted(keys: Array, weights: Array) -> Array:
    real = np.flatnonzero(keys != EMPTY)
    real = real[np.argsort(keys[real])]
    run = np.empty(len(real), _PAIR)
    run["mixed"], run["weight"] = keys[real], weights[real]
    return run


def _on_disk(records: Array, folder: Path | None) -> Array:
    """The same records in a file without a name, which is gone when the array is."""
    with scratch_file(folder) as file:
        records.tofile(file)
        file.flush()
        return np.memmap(file, dtype=records.dtype, mode="r")


def _merged(runs: list[Array], words: int, folder: Path | None) -> Array:
    """The runs, each in the order of its keys, as one, with equal keys added up; on disk if there are several."""
    if len(runs) == 1:
        return _counts(runs[0]["mixed"], runs[0]["weight"], words)
    parts = -(-sum(map(len, runs)) // PART)
    edges = [np.uint64(2**64 * p // parts) for p in range(parts)]
    with scratch_file(folder) as file:
        for p, low in enumerate(edges):
            cut = [(r, *np.searchsorted(r["mixed"], [low, *edges[p + 1 : p + 2]])) for r in runs]
            joined = np.concatenate([r[begin : end[0] if end else len(r)] for r, begin, *end in cut])
            joined = joined[np.argsort(joined["mixed"], kind="stable")]
            first = np.flatnonzero(np.diff(joined["mixed"], prepend=EMPTY))
            if len(first):
                total = np.add.reduceat(joined["weight"], first)
                _counts(joined["mixed"][first], total, words).tofile(file)
        file.flush()
        return np.memmap(file, dtype=COUNT, mode="r")


def _counts(mixed: Array, weights: Array, words: int) -> Array:
    found = np.empty(len(mixed), COUNT)
    found["row"], found["column"] = np.divmod((mixed * UNMIX).astype(np.int64), words)
    found["count"] = weights
    return found
