"""A prefix tree as flat arrays: what the searches walk on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
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


# ----------------------------------------------------------------------------
# The minimal automaton of a lexicon: spellings share their beginnings and their ends (Daciuk et al. 2000).
#
# A state no longer says which spelling was read, so a place is a pair: the state, and how many spellings come before all that
# can still be read (in the order of the alphabet). Where a spelling ends, that number is its own, and its words are looked up
# (a perfect hash, Lucchesi & Kowaltowski 1993). Each place is one node of the prefix tree, so a search on either is the same.

Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Automaton:
    """State 0 is the root. A place is ``before · states + state``; place 0 is the root, before anything was read."""

    first: Ints
    """(states + 1,): the arcs of s are ``first[s]`` to ``first[s + 1] − 1``, in the order of their symbols."""
    symbol: Ints
    """(arcs,)"""
    target: Ints
    """(arcs,): the state that an arc leads to."""
    skipped: Ints
    """(arcs,): how many of the spellings that can be read from its state come before those of the arc."""
    final: NDArray[np.bool_]
    """(states,): whether a spelling ends here."""
    count: Ints
    """(states,): how many spellings can still be read from here."""
    word_first: Ints
    """(spellings + 1,): the words of spelling n are ``word[word_first[n] : word_first[n + 1]]``."""
    word: Ints
    """(entries,): as in `Tree`."""

    def __len__(self) -> int:
        return len(self.final)

    @property
    def positions(self) -> int:
        """More than any place."""
        return len(self) * (len(self.word_first) + 1)

    def following(self, at: Places) -> tuple[Places, Ints, Places]:
        """All arcs from the places `at` (rows,): the row, the symbol and the place each leads to."""
        before, state = np.divmod(at, len(self))
        row, arc = ranges(np.arange(len(at)), self.first[state], self.first[state + 1])
        return row, self.symbol[arc], (before[row] + self.skipped[arc]) * len(self) + self.target[arc]

    def goes_on(self, places: Places) -> NDArray[np.bool_]:
        """Whether something follows."""
        state = places % len(self)
        found: NDArray[np.bool_] = self.first[state + 1] > self.first[state]
        return found

    def ending(self, places: Places) -> tuple[Places, Places]:
        """The words that end at `places`, each with the number of its place."""
        before, state = np.divmod(places, len(self))
        ends = np.flatnonzero(self.final[state])
        row, entry = ranges(ends, self.word_first[before[ends]], self.word_first[before[ends] + 1])
        return row, self.word[entry].astype(np.int64)

    def best_below(self, values: NDArray[np.float64]) -> Callable[[Places], NDArray[np.float64]]:
        """What gives the greatest of `values` (words,) among the words that end at or below a place, 0 for the root and where
        there is none; places are cached."""
        best = np.full(len(self.word_first) - 1, -np.inf)
        owner = np.repeat(np.arange(len(best)), np.diff(self.word_first))
        real = self.word >= 0
        np.maximum.at(best, owner[real], values[self.word[real]])
        known: dict[int, float] = {0: 0.0}

        def below(place: int) -> float:
            if place not in known:
                before, state = divmod(place, len(self))
                found = float(best[before : before + int(self.count[state])].max())
                known[place] = found if found > -np.inf else 0.0
            return known[place]

        return lambda places: np.array([below(place) for place in places.tolist()], dtype=np.float64)


def minimal(tree: Tree) -> Automaton:
    """The smallest automaton that reads what `tree` reads: nodes with the same continuations become one state."""
    states: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
    of = np.zeros(len(tree), dtype=np.int64)
    ends = np.diff(tree.word_first) > 0
    symbol, first = tree.symbol.tolist(), tree.first.tolist()
    for node in range(len(tree) - 1, -1, -1):  # children have greater numbers
        arcs = tuple((symbol[child], int(of[child])) for child in range(first[node], first[node + 1]))
        of[node] = states.setdefault((bool(ends[node]), arcs), len(states))
    root = len(states) - 1  # no other node can read all that the root reads
    kinds = list(states)
    final = np.array([kind[0] for kind in reversed(kinds)])
    arcs_of = [[(by, root - to) for by, to in kind[1]] for kind in reversed(kinds)]
    count = np.zeros(len(kinds), dtype=np.int64)
    skipped: list[list[int]] = [[] for _ in kinds]
    for state in range(root, -1, -1):  # an arc leads to a state of a greater number
        read = int(final[state])
        for _, to in arcs_of[state]:
            skipped[state].append(read)
            read += int(count[to])
        count[state] = read
    by_spelling, word_first = _in_order(tree)
    sizes = np.cumsum([0, *(len(arcs) for arcs in arcs_of)])
    numbers = partial(np.asarray, dtype=np.int32)
    return Automaton(
        first=numbers(sizes),
        symbol=numbers([by for arcs in arcs_of for by, _ in arcs]),
        target=numbers([to for arcs in arcs_of for _, to in arcs]),
        skipped=numbers([before for row in skipped for before in row]),
        final=final,
        count=numbers(count),
        word_first=numbers(word_first),
        word=numbers(tree.word[by_spelling]),
    )


def _in_order(tree: Tree) -> tuple[list[int], list[int]]:
    """The entries of the tree in the order of their spellings, and where those of each spelling begin."""
    entries: list[int] = []
    starts = [0]
    waiting = [0]
    while waiting:
        node = waiting.pop()
        here = range(tree.word_first[node], tree.word_first[node + 1])
        if here:
            entries += here
            starts.append(len(entries))
        waiting += range(tree.first[node + 1] - 1, tree.first[node] - 1, -1)
    return entries, starts
