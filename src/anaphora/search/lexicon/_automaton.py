"""The minimal automaton of a lexicon: spellings share their beginnings and their ends (Daciuk et al. 2000).

A state no longer says which spelling was read, so a place is a pair: the state, and how many spellings come before all that
can still be read (in the order of the alphabet). Where a spelling ends, that number is its own, and its words are looked up
(a perfect hash, Lucchesi & Kowaltowski 1993). Each place is one node of the prefix tree, so a search on either is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anaphora.search.lexicon._tree import Ints, Tree, ranges

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
