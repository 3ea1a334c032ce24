"""How often words stand near each other, counted in a bounded piece of memory, the rest on disk."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.kernels.embeddings.glove import EMPTY, UNMIX, count_pairs, move_pairs
from anaphora.models.classical.ngram.disk import chunks
from anaphora.models.embeddings.text import FIRST, Text

Array = np.ndarray[Any, Any]

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
    with tempfile.TemporaryFile(dir=folder) as file:
        records.tofile(file)
        file.flush()
        return np.memmap(file, dtype=records.dtype, mode="r")


def _merged(runs: list[Array], words: int, folder: Path | None) -> Array:
    """The runs, each in the order of its keys, as one, with equal keys added up; on disk if there are several."""
    if len(runs) == 1:
        return _counts(runs[0]["mixed"], runs[0]["weight"], words)
    parts = -(-sum(map(len, runs)) // PART)
    edges = [np.uint64(2**64 * p // parts) for p in range(parts)]
    with tempfile.TemporaryFile(dir=folder) as file:
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
