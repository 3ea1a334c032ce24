"""A language model inside a kernel: the automaton of `kernels.ngram`, read one word at a time.

Models that only Python can ask are served by the same tables: what they answered is entered as an arc, and a search
stops to ask for the arcs it is going to need.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anaphora.native.jit import njit
from anaphora.ops.ngram import EXIT, SLOT, _find

Array = NDArray[Any]


class Words(NamedTuple):
    """A backoff automaton over the words of a lexicon."""

    slots: Array
    """Its arcs by state and word, a hash table of `SLOT` records."""
    unigrams: Array
    """(V,): the arcs of state 0."""
    exits: Array
    """(states,): what to pay and where to go where there is no arc; empty if arcs are entered when needed."""
    ids: Array
    """(words,): the model's numbers of the lexicon's words."""
    scale: float
    """By what its numbers are multiplied: the weight in natural logarithms. 0: there is no model."""


@cache
def no_words() -> Words:
    """No model: nothing is asked of it."""
    return Words(np.zeros(8, SLOT), np.zeros(0, SLOT), np.zeros(0, EXIT), np.zeros(0, np.int64), 0.0)


@njit(cache=True, nogil=True)
def read_word(model, state, word):  # type: ignore[no-untyped-def]
    """The number on the arc of a word of the lexicon, not scaled, and the state after it."""
    number = model.ids[word]
    paid = 0.0
    while state != 0:
        place = _find(model.slots, state, number, model.unigrams.shape[0])
        if place >= 0:
            return paid + model.slots[place].log_prob, np.int64(model.slots[place].after)
        paid += model.exits[state].backoff
        state = np.int64(model.exits[state].suffix)
    return paid + model.unigrams[number].log_prob, np.int64(model.unigrams[number].after)


@njit(cache=True, nogil=True)
def read_words(model, states, words):  # type: ignore[no-untyped-def]
    """`read_word` for states (rows,) and words (rows,): numbers and states (rows,)."""
    numbers, after = np.empty(len(states)), np.empty(len(states), np.int64)
    for row in range(len(states)):
        numbers[row], after[row] = read_word(model, states[row], words[row])
    return numbers, after


@njit(cache=True, nogil=True)
def known(model, state, word):  # type: ignore[no-untyped-def]
    """Whether a word has an arc of its own from a state."""
    return _find(model.slots, state, model.ids[word], model.unigrams.shape[0]) >= 0


@njit(cache=True, nogil=True)
def best_below(parent, word_first, word, values, best):  # type: ignore[no-untyped-def]
    """Fill best (nodes,) of a tree with the greatest of values (words,) of the words at or below each node.

    Nodes without one keep −∞; entries below 0 are no words.
    """
    best[:] = -np.inf
    for node in range(len(parent) - 1, 0, -1):
        for entry in range(word_first[node], word_first[node + 1]):
            if word[entry] >= 0:
                best[node] = max(best[node], values[word[entry]])
        best[parent[node]] = max(best[parent[node]], best[node])
