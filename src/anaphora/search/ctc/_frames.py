"""Prefix beam search over the frames of one input, with the prefixes in a tree of arrays.

A prefix y has two masses, both in logarithms: of its paths that end in a blank and of those that end in its last
symbol. One frame with log-probabilities q makes of them

    blank(y)  ← total(y) + q(blank)
    label(y)  ← label(y) + q(y's last symbol)  ⊕  (total(y⁻) or, if y ends in two equal symbols, blank(y⁻)) + q(last)

where y⁻ is y without its last symbol and ⊕ adds in the log domain. Each prefix is one entry of the beam, whatever its
paths end in, so nothing is kept twice.
"""

from __future__ import annotations

import numpy as np

from anaphora.native.jit import njit

_INF = np.inf


@njit(cache=True, nogil=True)
def _log_add(a, b):  # type: ignore[no-untyped-def]
    high, low = (a, b) if a >= b else (b, a)
    if not low > high - 40.0:  # less than a rounding of the other, or −∞
        return high
    # As exact as log1p beside masses of some nats, and quicker.
    return high + np.log(1.0 + np.exp(low - high))


@njit(cache=True, nogil=True)
def _offer(scores, names, count, size, score, name):  # type: ignore[no-untyped-def]
    """Put a candidate into the heap of the `size` best, least on top; the new count. Equals stay out when it is full."""
    if count < size:
        at = count
        while at > 0 and scores[(at - 1) // 2] > score:
            above = (at - 1) // 2
            scores[at], names[at] = scores[above], names[above]
            at = above
        scores[at], names[at] = score, name
        return count + 1
    if score > scores[0]:
        _sink(scores, names, count, score, name)
    return count


@njit(cache=True, nogil=True)
def _sink(scores, names, count, score, name):  # type: ignore[no-untyped-def]
    """Put a candidate in place of the least of the heap."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and scores[child + 1] < scores[child]:
            child += 1
        if not scores[child] < score:
            break
        scores[at], names[at] = scores[child], names[child]
        at = child
    scores[at], names[at] = score, name


@njit(cache=True, nogil=True)
def _sort(scores, names, count):  # type: ignore[no-untyped-def]
    """Turn the heap into a list, best first."""
    for last in range(count - 1, 0, -1):
        score, name = scores[last], names[last]
        scores[last], names[last] = scores[0], names[0]
        _sink(scores, names, last, score, name)


@njit(cache=True, nogil=True)
def _child(node, symbol, parent, last, first_child, sibling, nodes):  # type: ignore[no-untyped-def]
    """The node of a prefix with one symbol more, made if the tree lacks it; and the number of nodes."""
    found = first_child[node]
    while found >= 0 and last[found] != symbol:
        found = sibling[found]
    if found >= 0:
        return found, nodes
    parent[nodes], last[nodes] = node, symbol
    sibling[nodes], first_child[node] = first_child[node], nodes
    return nodes, nodes + 1


@njit(cache=True, nogil=True)
def _stay(q, blank, beam, size, masses, stayed, parent, last, place, covered):  # type: ignore[no-untyped-def]
    """The masses of the kept prefixes one frame later: blank, label, total. Marks extensions they already hold."""
    for j in range(size):
        symbol = last[beam[j]]
        stayed[0, j] = masses[2, j] + q[blank]
        stayed[1, j] = -_INF
        if symbol >= 0:
            stayed[1, j] = masses[1, j] + q[symbol]
            up = place[parent[beam[j]]]
            if up >= 0:
                covered[up, symbol] = True
                shorter = masses[0, up] if last[beam[up]] == symbol else masses[2, up]
                stayed[1, j] = _log_add(stayed[1, j], shorter + q[symbol])
        stayed[2, j] = _log_add(stayed[0, j], stayed[1, j])


@njit(cache=True, nogil=True)
def _candidates(q, blank, beam, size, masses, stayed, last, covered, heap, names, width, best, order):  # type: ignore[no-untyped-def]
    """Fill the heap with the best of staying and extending; its count. Name j stays, width + i·V + k extends i by k."""
    V = len(q)
    count = 0
    for j in range(size):
        if stayed[2, j] > -_INF:
            count = _offer(heap, names, count, width, stayed[2, j], j)
    symbols = 0
    for k in range(V):
        if k != blank and q[k] > -_INF:
            symbols = _offer(best, order, symbols, len(best), q[k], k)
    _sort(best, order, symbols)
    for i in range(size):  # best prefix first, so what cannot get in ends the search
        for rank in range(symbols):
            score = masses[2, i] + best[rank]
            if count == width and not score > heap[0]:
                if rank == 0:
                    return count
                break
            k = order[rank]
            if covered[i, k]:
                continue
            if k == last[beam[i]]:  # the same symbol again needs a blank before it
                score = masses[0, i] + best[rank]
            if score > -_INF:
                count = _offer(heap, names, count, width, score, width + i * V + k)
    return count


@njit(cache=True, nogil=True)
def new_prefixes(frames, width):  # type: ignore[no-untyped-def]
    """A beam that holds the empty prefix, with room for all prefixes of so many frames:

    tree (5, nodes): the parent, last symbol, first child, next sibling of each prefix that was ever kept, and its place in the beam;
    beam (width,): the nodes that are kept now; masses (3, width): their blank, label and total; counts: of the beam and of the tree.
    """
    tree = np.full((5, frames * width + 1), -1, np.int32)
    masses = np.full((3, width), -_INF)
    masses[0, 0] = masses[2, 0] = 0.0
    tree[4, 0] = 0
    return tree, np.zeros(width, np.int32), masses, np.ones(2, np.int64)


@njit(cache=True, nogil=True)
def prefix_frames(log_p, blank, tree, beam, masses, counts):  # type: ignore[no-untyped-def]
    """The beam after frames with log-probabilities (T, V), in place; the tree has room for T · width more nodes."""
    V, width = log_p.shape[1], len(beam)
    parent, last, first_child, sibling, place = tree[0], tree[1], tree[2], tree[3], tree[4]
    kept = np.zeros(width, np.int32)
    stayed, made = np.empty((3, width)), np.empty((3, width))
    heap, names = np.empty(width), np.empty(width, np.int64)
    # A prefix may place at most `width` extensions; one more, as repeating its last symbol scores less than its rank.
    best, order = np.empty(min(V, width + 1)), np.empty(min(V, width + 1), np.int64)
    covered = np.zeros((width, V), np.bool_)
    size, nodes = counts[0], counts[1]
    for t in range(len(log_p)):
        q = log_p[t]
        _stay(q, blank, beam, size, masses, stayed, parent, last, place, covered)
        count = _candidates(
            q, blank, beam, size, masses, stayed, last, covered, heap, names, width, best, order
        )
        _sort(heap, names, count)
        for j in range(size):
            node = beam[j]
            if last[node] >= 0 and place[parent[node]] >= 0:
                covered[place[parent[node]], last[node]] = False
        for j in range(size):
            place[beam[j]] = -1
        for j in range(count):
            if names[j] < width:
                kept[j] = beam[names[j]]
                made[:, j] = stayed[:, names[j]]
            else:
                i, symbol = divmod(names[j] - width, V)
                kept[j], nodes = _child(beam[i], symbol, parent, last, first_child, sibling, nodes)
                made[0, j], made[1, j], made[2, j] = -_INF, heap[j], heap[j]
        size = count
        for j in range(size):
            beam[j] = kept[j]
            masses[0, j], masses[1, j], masses[2, j] = made[0, j], made[1, j], made[2, j]
            place[beam[j]] = j
    counts[0], counts[1] = size, nodes


@njit(cache=True, nogil=True)
def read_prefixes(beam, n, masses, tree):  # type: ignore[no-untyped-def]
    """Scores, lengths and symbols of the first n prefixes, read from their ends to the root."""
    parent, last = tree[0], tree[1]
    lengths = np.zeros(n, np.int64)
    for j in range(n):
        node = beam[j]
        while node != 0:
            lengths[j] += 1
            node = parent[node]
    symbols = np.full((n, max(lengths.max(), 0) if n else 0), -1, np.int64)
    for j in range(n):
        node, at = beam[j], lengths[j]
        while node != 0:
            at -= 1
            symbols[j, at] = last[node]
            node = parent[node]
    return masses[2, :n].copy(), lengths, symbols
