"""Counts of all n-grams of a text as one sorted array per order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from anaphora.data.symbols import BOS

Array = np.ndarray[Any, Any]


@dataclass
class Level:
    """The distinct n-grams w₁…wₙ of one order, sorted by (history, last word).

    ``parent`` and ``suffix`` are places in the level below, of w₁…wₙ₋₁ and of w₂…wₙ. The first level lists the
    whole vocabulary, seen or not, so that the place of a word is its id.
    """

    parent: Array
    word: Array
    suffix: Array
    count: Array
    opens: Array
    """True where w₁ is <s>."""

    def __len__(self) -> int:
        return len(self.word)


def first_level(count: Array) -> Level:
    """The unigrams, from how often each symbol occurs. <s> is history only: its own count becomes 0."""
    words = np.arange(len(count), dtype=np.int64)
    nothing = np.zeros(len(count), dtype=np.int64)
    return Level(nothing, words, nothing, np.where(words == BOS, 0, count), words == BOS)


def count_levels(ids: Array, order: int, symbols: int) -> list[Level]:
    """Levels 1 … ``order`` of ``ids (tokens,)``, sentences one after the other, each from <s> to </s>.

    The place of the n-gram that ends at each token is carried from order to order, so that an n-gram is one
    integer, place(w₁…wₙ₋₁) · V + wₙ, and counting is sorting.
    """
    levels = [first_level(np.bincount(ids, minlength=symbols))]
    positions = np.arange(len(ids), dtype=np.int64)
    since_start = positions - np.maximum.accumulate(np.where(ids == BOS, positions, 0))
    place = ids.astype(np.int64)
    for n in range(2, order + 1):
        ends = positions[since_start >= n - 1]
        keys = place[ends - 1] * symbols + ids[ends]
        by_key = np.argsort(keys)
        keys = keys[by_key]
        new = np.empty(len(keys), dtype=np.bool_)
        new[:1] = True
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        first = np.flatnonzero(new)
        parent, word = np.divmod(keys[first], symbols)
        suffix = place[ends[by_key[first]]]
        count = np.diff(first, append=len(keys))
        levels.append(Level(parent, word, suffix, count, levels[-1].opens[parent]))
        place[ends[by_key]] = np.cumsum(new) - 1
    return levels


def kept_by_count(levels: list[Level], thresholds: list[int]) -> list[Array]:
    """Which n-grams stay when those seen at most ``thresholds[n - 1]`` times go; the prefixes of those that stay do."""
    kept = [level.count > least for level, least in zip(levels, thresholds, strict=True)]
    kept[0][:] = True
    for n in range(len(levels) - 1, 1, -1):
        kept[n - 1][levels[n].parent[kept[n]]] = True
    return kept
