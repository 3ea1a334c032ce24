"""Byte pair encoding with merges left out at random (BPE-dropout, Provilkov et al. 2020)."""

from __future__ import annotations

import numpy as np

from anaphora.native.jit import njit

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_A, _MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31, _11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11)
_NONE = np.int64(1 << 60)


@njit(cache=True, nogil=True, inline="always")
def _mixed(state):  # type: ignore[no-untyped-def]
    """splitmix64: well mixed bits of a counter."""
    z = (state ^ (state >> _30)) * _MIX_A
    z = (z ^ (z >> _27)) * _MIX_B
    return z ^ (z >> _31)


@njit(cache=True, nogil=True)
def _rank(keys, left, right, symbols):  # type: ignore[no-untyped-def]
    """Where the pair stands in the sorted ``keys``, or -1."""
    wanted = np.int64(left) * symbols + np.int64(right)
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < len(keys) and keys[low] == wanted else -1


@njit(cache=True, nogil=True)
def cut_at_random(base, words, rows, seeds, keys, ranks, merged, symbols, rate):  # type: ignore[no-untyped-def]
    """The pieces of each row, ``(pieces,)`` one row after the other, and how many each row has.

    base: the symbols of single characters of all rows; words: how many of them each word has; rows: how many words each row
    has; seeds: one number for each row, from which its draws follow. keys: left · symbols + right of every merge, sorted;
    ranks and merged: when each is done, and what it makes. In each round every possible merge of a word is left out with
    probability ``rate``, and the first of the others is done; a word is finished when none is left.
    """
    found = np.empty(len(base), np.int32)
    lengths = np.zeros(len(rows), np.int64)
    longest = 0
    for size in words:
        longest = max(longest, size)
    piece, place = np.empty(longest + 1, np.int32), np.empty(longest + 1, np.int64)
    at, word, out = 0, 0, 0
    for row in range(len(rows)):
        state = _mixed(seeds[row] + _STEP)
        for _ in range(rows[row]):
            size = words[word]
            for i in range(size):
                piece[i] = base[at + i]
            for i in range(size - 1):
                place[i] = _rank(keys, piece[i], piece[i + 1], symbols)
            at += size
            word += 1
            while size > 1:
                first, best = -1, _NONE
                for i in range(size - 1):
                    if place[i] < 0:
                        continue
                    state = state + _STEP
                    if np.float64(_mixed(state) >> _11) * (1.0 / 9007199254740992.0) < rate:
                        continue
                    if ranks[place[i]] < best:
                        first, best = i, ranks[place[i]]
                if first < 0:
                    break
                piece[first] = merged[place[first]]
                size -= 1
                for i in range(first + 1, size):
                    piece[i] = piece[i + 1]
                    place[i - 1] = place[i]
                for i in range(max(first - 1, 0), min(first + 1, size - 1)):
                    place[i] = _rank(keys, piece[i], piece[i + 1], symbols)
            for i in range(size):
                found[out + i] = piece[i]
            out += size
            lengths[row] += size
    return found[:out], lengths
