"""A prefix tree as flat arrays: what the searches walk on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]

PAUSE = -1
"""The number of no word: a separator that ends none, before the first word or after another separator."""


@dataclass(frozen=True, eq=False)
class Tree:
    """Node 0 is the root; the nodes of one depth follow each other, sorted by parent and symbol.

    Spellings that begin alike share the nodes of their beginning. Several words may end at one node.
    """

    parent: Ints
    """(nodes,): the node before; −1 for the root."""
    symbol: Ints
    """(nodes,): the symbol that leads into a node; −1 for the root."""
    first: Ints
    """(nodes + 1,): the children of n are the nodes ``first[n]`` to ``first[n + 1] − 1``."""
    word_first: Ints
    """(nodes + 1,): those who end at n are the entries ``word_first[n]`` to ``word_first[n + 1] − 1``."""
    word: Ints
    """(entries,): the word of an entry, or `PAUSE`. A word has an entry for each of its spellings."""
    end: Ints
    """(entries,): the node at which an entry ends."""

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def fan(self) -> int:
        """The most continuations of one node: its children and the words that end at them."""
        counts = np.diff(self.first)
        np.add.at(counts, self.parent[1:], np.diff(self.word_first)[1:])
        return int(counts.max())

    @cached_property
    def depth(self) -> Ints:
        """(nodes,): how many symbols lead to a node."""
        depth = np.zeros(len(self), dtype=np.int32)
        low, high = 0, 1
        while low < high:
            low, high = int(self.first[low]), int(self.first[high])
            depth[low:high] = depth[self.parent[low:high]] + 1
        return depth

    def children(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All children of `nodes` (rows,), and the row of each child's parent."""
        return ranges(np.arange(len(nodes)), self.first[nodes], self.first[nodes + 1])

    def entries(
        self, rows: NDArray[np.int64], nodes: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All entries that end at `nodes` (rows,), each with its node's value of `rows`."""
        return ranges(rows, self.word_first[nodes], self.word_first[nodes + 1])

    @property
    def positions(self) -> int:
        """More than any place; a place is a node."""
        return len(self)

    def following(self, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], Ints, NDArray[np.int64]]:
        """All arcs from the places `at` (rows,): the row, the symbol and the place each leads to."""
        row, child = self.children(at)
        return row, self.symbol[child], child

    def goes_on(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether something follows."""
        found: NDArray[np.bool_] = self.first[places + 1] > self.first[places]
        return found

    def ending(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The words that end at `places`, each with the number of its place."""
        row, entry = self.entries(np.arange(len(places)), places)
        return row, self.word[entry].astype(np.int64)

    def spelling(self, node: int) -> list[int]:
        """The symbols from the root to a node."""
        found = []
        while node > 0:
            found.append(int(self.symbol[node]))
            node = int(self.parent[node])
        return found[::-1]


def ranges(rows: NDArray[np.int64], first: Ints, end: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers from first to end of each row, one range after the other, and their rows."""
    many = (end - first).astype(np.int64)
    within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    return np.repeat(rows, many), np.repeat(first, many) + within


def grow(spellings: Sequence[Sequence[int]], words: Sequence[int], symbols: int) -> Tree:
    """The tree of `spellings`, none of them empty; entry i ends with word ``words[i]``."""
    sizes = np.array([len(spelling) for spelling in spellings], dtype=np.int64)
    padded = np.zeros((len(sizes), int(sizes.max())), dtype=np.int64)
    for row, spelling in zip(padded, spellings, strict=True):
        row[: len(spelling)] = spelling
    node = np.zeros(len(sizes), dtype=np.int64)
    parents, leading = [np.array([-1])], [np.array([-1])]
    nodes = 1
    for place in range(padded.shape[1]):  # depth by depth: equal (node, symbol) become one child
        longer = sizes > place
        keys, which = np.unique(node[longer] * symbols + padded[longer, place], return_inverse=True)
        parents.append(keys // symbols)
        leading.append(keys % symbols)
        node[longer] = nodes + which
        nodes += len(keys)
    parent, symbol = np.concatenate(parents), np.concatenate(leading)
    by_end = np.argsort(node, kind="stable")
    places = np.arange(nodes + 1)
    first = 1 + np.searchsorted(parent[1:], places)
    word_first = np.searchsorted(node[by_end], places)
    columns = (parent, symbol, first, word_first, np.asarray(words)[by_end], node[by_end])
    return Tree(*(column.astype(np.int32) for column in columns))
