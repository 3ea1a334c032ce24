"""Walks through an n-gram trie: look an arc up, fall back to shorter histories, spread a whole distribution.

The trie is an automaton. Node 0 is the empty history, node 1 + w the unigram w, longer n-grams follow. An arc
``(node, word) -> child`` exists where the n-gram is stored; elsewhere the walk pays ``backoff[node]`` and tries
again from ``suffix[node]``, the longest stored history that drops the first words:

    log p(w | h) = log p(child)                     if h w is stored
                 = backoff(h) + log p(w | suffix h)  otherwise

Arcs beyond the unigrams are in a hash table of `SLOT` records with key = node · V + word, whose size is a power of
two. What is read of an arc lies beside its key, and what a node pays beside where it leads (`EXIT`): a large table
is slow for the memory it touches, not for what it computes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.native.jit import njit

Array = np.ndarray[Any, Any]

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio, for multiplicative hashing
_HALF = np.uint64(32)

SLOT = np.dtype([("key", np.int64), ("log_prob", np.float64), ("after", np.int64)])
"""An arc: log p of its word, and the history it leaves. The key is −1 where the slot is free."""
EXIT = np.dtype([("backoff", np.float64), ("suffix", np.int64)])
"""The way down from a node."""


@njit(cache=True, nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _slot(key: Any, mask: int) -> int:
    mixed = np.uint64(key) * _MIX
    return np.int64((mixed ^ (mixed >> _HALF)) & np.uint64(mask))  # type: ignore[return-value]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fill_slots(
    slots: Array, parent: Array, word: Array, log_prob: Array, after: Array, first: int, symbols: int
) -> None:
    """Enter the nodes from ``first`` on into ``slots``, whose keys are −1 where free."""
    mask = slots.shape[0] - 1
    for node in range(first, parent.shape[0]):
        key = np.int64(parent[node]) * symbols + word[node]
        place = _slot(key, mask)
        while slots[place].key != -1:
            place = (place + 1) & mask
        slots[place].key = key
        slots[place].log_prob = log_prob[node]
        slots[place].after = after[node]


@njit(cache=True, nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _find(slots: Array, node: Any, word: int, symbols: int) -> int:
    """The slot of an arc; −1 where the trie has none."""
    mask = slots.shape[0] - 1
    key = np.int64(node) * symbols + word
    place = _slot(key, mask)
    while slots[place].key != key:
        if slots[place].key == -1:
            return -1
        place = (place + 1) & mask
    return place  # type: ignore[no-any-return]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def walk(slots: Array, unigrams: Array, exits: Array, ids: Array, begin: int, out: Array) -> None:
    """log p of every symbol of ``ids (tokens,)`` given those before it; ``begin`` starts a sentence and costs 0.

    ``unigrams (V,)`` are the arcs of the empty history, as `SLOT` records; ``exits (nodes,)`` are `EXIT` records.
    """
    symbols = unigrams.shape[0]
    node = np.int64(0)
    for i in range(ids.shape[0]):
        word = ids[i]
        if word == begin:
            node = unigrams[word].after
            out[i] = 0.0
            continue
        paid = 0.0
        place = -1
        while node != 0:
            place = _find(slots, node, word, symbols)
            if place >= 0:
                break
            paid += exits[node].backoff
            node = exits[node].suffix
        if place >= 0:
            out[i] = paid + slots[place].log_prob
            node = slots[place].after
        else:
            out[i] = paid + unigrams[word].log_prob
            node = unigrams[word].after


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def advance(slots: Array, unigrams: Array, exits: Array, nodes: Array, words: Array) -> Array:
    """The histories ``(rows,)`` after ``words (rows,)`` were read in ``nodes (rows,)``."""
    out = np.empty_like(nodes)
    for row in range(nodes.shape[0]):
        node, place = nodes[row], -1
        while node != 0:
            place = _find(slots, node, words[row], unigrams.shape[0])
            if place >= 0:
                break
            node = exits[node].suffix
        out[row] = slots[place].after if place >= 0 else unigrams[words[row]].after
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def spread(
    log_prob: Array, backoff: Array, suffix: Array, word: Array, children: Array, nodes: Array, out: Array
) -> None:
    """log p of every next symbol after each of ``nodes (rows,)``, into ``out (rows, V)``.

    The children of a node are the nodes ``children[node]`` to ``children[node + 1]``. Short histories are
    written first, so that longer ones overwrite them.
    """
    symbols = out.shape[1]
    chain = np.empty(64, np.int64)
    for row in range(nodes.shape[0]):
        depth, node, paid = 0, nodes[row], 0.0
        while node != 0:
            chain[depth] = node
            paid += backoff[node]
            depth += 1
            node = suffix[node]
        for w in range(symbols):
            out[row, w] = paid + log_prob[1 + w]
        for d in range(depth - 1, -1, -1):
            node = chain[d]
            paid -= backoff[node]
            for child in range(children[node], children[node + 1]):
                out[row, word[child]] = paid + log_prob[child]
