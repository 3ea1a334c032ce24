"""GloVe's inner loops: counting which words stand near each other, and least squares on the logarithms of counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.native.jit import njit

Array = np.ndarray[Any, Any]

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""A free slot. No pair has this number: it would be that of a key of 64 bits, and keys have 62."""
MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so multiplying by it modulo 2⁶⁴ loses nothing and can be undone
UNMIX = np.uint64(pow(0x9E3779B97F4A7C15, -1, 2**64))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _slot(mixed: Any, keys: Array, shift: Any) -> int:
    """Where a pair is or belongs: looked for from the place that its high bits name."""
    mask = keys.shape[0] - 1
    place = np.int64(mixed >> shift)
    while keys[place] != mixed and keys[place] != EMPTY:
        place = (place + 1) & mask
    return place  # type: ignore[return-value]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def count_pairs(
    ids: Array, begin: int, words: int, history: Array, held: Array, keys: Array, weights: Array, used: Array
) -> int:
    """Add 1/distance for each pair of words at most ``len(history)`` apart, from ``ids[begin]`` on.

    A pair i ≤ j has the key (i · words + j) · MIX; a word with itself counts twice, as both of its orders are the
    same pair. history ``(window,)`` are the last ``held[0]`` words of the sentence, the last one first, and go
    on from call to call. Returns how far it came: less than the length when the table is three quarters full.
    """
    shift = np.uint64(64 - int(np.round(np.log2(keys.shape[0]))))
    limit = keys.shape[0] // 4 * 3 - history.shape[0]
    for t in range(begin, ids.shape[0]):
        w = ids[t]
        if w < 0:
            if w == -1:
                held[0] = 0
            continue
        if used[0] > limit:
            return t
        for k in range(held[0]):
            c = history[k]
            low, high = min(w, c), max(w, c)
            mixed = np.uint64(np.int64(low) * words + high) * MIX
            place = _slot(mixed, keys, shift)
            if keys[place] == EMPTY:
                keys[place] = mixed
                weights[place] = 0.0
                used[0] += 1
            weights[place] += (2.0 if low == high else 1.0) / (k + 1)
        held[0] = min(held[0] + 1, history.shape[0])
        for k in range(held[0] - 1, 0, -1):
            history[k] = history[k - 1]
        history[0] = w
    return ids.shape[0]  # type: ignore[no-any-return]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def move_pairs(keys: Array, weights: Array, new_keys: Array, new_weights: Array) -> None:
    """Enter all pairs of one table into another, larger one that is empty."""
    shift = np.uint64(64 - int(np.round(np.log2(new_keys.shape[0]))))
    for i in range(keys.shape[0]):
        if keys[i] != EMPTY:
            place = _slot(keys[i], new_keys, shift)
            new_keys[place] = keys[i]
            new_weights[place] = weights[i]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})  # type: ignore[untyped-decorator]
def _fit_one(
    w: Array, c: Array, bias: Array, context_bias: Array, w_seen: Array, c_seen: Array, bias_seen: Array,
    context_bias_seen: Array, i: int, j: int, target: Any, weight: Any, lr: Any,
) -> Any:  # fmt: skip
    """One step on ½ f (w_i · c_j + b_i + b̃_j − log x)²; the sums of squared gradients grow in ``…_seen``."""
    row, column, row_seen, column_seen = w[i], c[j], w_seen[i], c_seen[j]
    total = np.float32(0.0)
    for d in range(row.shape[0]):
        total += row[d] * column[d]
    apart = total + bias[i] + context_bias[j] - target
    slope = weight * apart
    for d in range(row.shape[0]):
        down, across = slope * column[d], slope * row[d]
        row[d] -= lr * down / np.sqrt(row_seen[d])
        column[d] -= lr * across / np.sqrt(column_seen[d])
        row_seen[d] += down * down
        column_seen[d] += across * across
    bias[i] -= lr * slope / np.sqrt(bias_seen[i])
    context_bias[j] -= lr * slope / np.sqrt(context_bias_seen[j])
    bias_seen[i] += slope * slope
    context_bias_seen[j] += slope * slope
    return np.float32(0.5) * slope * apart


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fit_pairs(
    rows: Array, columns: Array, counts: Array, w: Array, c: Array, bias: Array, context_bias: Array, w_seen: Array,
    c_seen: Array, bias_seen: Array, context_bias_seen: Array, most: float, power: float, lr: float,
) -> tuple[int, float]:  # fmt: skip
    """Steps on pairs i ≤ j with counts x, in both orders; f(x) = min(1, (x / most)^power). Returns terms and loss.

    rows, columns, counts ``(n,)``; w and c ``(V, width)``, the rest ``(V,)``.
    """
    rate = np.float32(lr)
    loss, terms = 0.0, 0
    for k in range(rows.shape[0]):
        i, j, x = rows[k], columns[k], counts[k]
        target = np.float32(np.log(x))
        weight = np.float32(min(1.0, (x / most) ** power))
        for turn in range(1 if i == j else 2):
            a, b = (i, j) if turn == 0 else (j, i)
            loss += _fit_one(
                w,
                c,
                bias,
                context_bias,
                w_seen,
                c_seen,
                bias_seen,
                context_bias_seen,
                a,
                b,
                target,
                weight,
                rate,
            )
            terms += 1
    return terms, loss
