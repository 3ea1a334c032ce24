"""Which candidates stay in a beam: the best, so many of one state, so far from the best.

A candidate has a score and a state. Of the candidates of one state only the `per_state` best stay: with one, this is
the recombination of dynamic programming, the maximum over all ways into a state.
"""

from __future__ import annotations

import numpy as np

from anaphora.native.jit import njit

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio, for multiplicative hashing
_HALF = np.uint64(32)


@njit(cache=True, nogil=True)
def new_table(most):  # type: ignore[no-untyped-def]
    """Room for the states of so many candidates: at least twice as many places, a power of two."""
    size = 8
    while size < 2 * most:
        size *= 2
    return np.empty(size, np.int64)


@njit(cache=True, nogil=True, inline="always")
def _before(scores, a, b):  # type: ignore[no-untyped-def]
    """Whether candidate a comes before b: the greater score, of equal ones the earlier."""
    return scores[a] > scores[b] or (scores[a] == scores[b] and a < b)


@njit(cache=True, nogil=True)
def _recombine(scores, states, count, least, per_state, table, pool):  # type: ignore[no-untyped-def]
    """Fill pool with the `per_state` best candidates of every state that are not below `least`; returns how many."""
    size = 8
    while size < 2 * count:
        size *= 2
    mask = np.uint64(size - 1)
    table[:size] = -1
    kept = 0
    for i in range(count):
        if not scores[i] > -np.inf or scores[i] < least:
            continue
        mixed = np.uint64(states[i]) * _MIX
        place = np.int64((mixed ^ (mixed >> _HALF)) & mask)
        same, worst = 0, -1
        while table[place] >= 0 and same < per_state:
            held = table[place]
            if states[pool[held]] == states[i]:
                same += 1
                if worst < 0 or _before(scores, pool[worst], pool[held]):
                    worst = held
            place = np.int64(np.uint64(place + 1) & mask)
        if same < per_state:
            table[place] = kept
            pool[kept] = i
            kept += 1
        elif _before(scores, i, pool[worst]):
            pool[worst] = i
    return kept


@njit(cache=True, nogil=True)
def _best_to_front(scores, pool, count, width):  # type: ignore[no-untyped-def]
    """Reorder pool (count,), more than `width`, so that its `width` best come first, in any order.

    Halving tells most of them apart by counting, which needs no branches; those between `low` and `high` are compared.
    """
    values = np.empty(count)
    for i in range(count):
        values[i] = scores[pool[i]]
    low, high = np.nextafter(values.min(), -np.inf), values.max()
    for _ in range(10):  # at least `width` are above low, fewer than that above high
        middle = 0.5 * (low + high)
        above = 0
        for i in range(count):
            above += 1 if values[i] > middle else 0
        if above >= width:
            low = middle
        else:
            high = middle
        if above == width:
            break
    front, i, end = 0, 0, count
    while i < end:
        if values[i] > high:
            pool[i], pool[front] = pool[front], pool[i]
            values[i], values[front] = values[front], values[i]
            front += 1
        elif values[i] <= low:
            end -= 1
            pool[i], pool[end] = pool[end], pool[i]
            values[i], values[end] = values[end], values[i]
            continue
        i += 1
    _select(scores, pool, front, end - 1, width)


@njit(cache=True, nogil=True)
def _select(scores, pool, low, high, width):  # type: ignore[no-untyped-def]
    """The same by comparing, for the places from low to high (Hoare's selection)."""
    while low < high:
        pivot = pool[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while _before(scores, pool[i], pivot):
                i += 1
            while _before(scores, pivot, pool[j]):
                j -= 1
            if i <= j:
                pool[i], pool[j] = pool[j], pool[i]
                i += 1
                j -= 1
        if width - 1 <= j:
            high = j
        elif width - 1 >= i:
            low = i
        else:
            break


@njit(cache=True, nogil=True)
def choose(scores, states, count, width, per_state, distance, table, pool):  # type: ignore[no-untyped-def]
    """Put the candidates that stay first into `pool`, in no order; returns how many.

    scores, states: (count or more,) of the candidates; states are not read if `per_state` is 0.
    width: the most that stay.
    per_state: the most that stay of one state; 0 for any number.
    distance: those further than this below the best go, and those of score −∞.
    table, pool: of `new_table(count)`, and as many places as candidates.
    """
    best = -np.inf
    for i in range(count):
        best = max(best, scores[i])
    least = best - distance if best > -np.inf else -np.inf
    kept = 0
    if per_state > 0:
        kept = _recombine(scores, states, count, least, per_state, table, pool)
    else:
        for i in range(count):
            if scores[i] > -np.inf and scores[i] >= least:
                pool[kept] = i
                kept += 1
    if kept > width:
        _best_to_front(scores, pool, kept, width)
        kept = width
    return kept
