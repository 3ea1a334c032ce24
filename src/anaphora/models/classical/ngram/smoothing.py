"""From counts to probabilities that are never zero.

All three methods interpolate an order with the one below,

    p(w | h) = α(h w) + γ(h) p(w | h′),        γ(h) = 1 − Σ_w α(h w),

where h′ is h without its first word, and the lowest is uniform over the predicted symbols (all but <pad> and <s>).
They differ in α alone. An n-gram that is pruned has α = 0, so that what it had goes into γ.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from anaphora.data.symbols import BOS, PAD
from anaphora.models.classical.ngram.counts import Level

Array = np.ndarray[Any, Any]

FALLBACK = (0.5, 1.0, 1.5)
"""Discounts of an order whose counts of counts do not give three sound ones (tiny or artificial data)."""


@dataclass
class Estimate:
    """Of one order: p of each n-gram, and γ of each history (an n-gram of the order below)."""

    prob: Array
    gamma: Array


def discounts(counts: Array) -> tuple[float, float, float]:
    """D₁, D₂, D₃₊ of modified Kneser-Ney (Chen and Goodman 1998, eq. 26) from counts of counts.

        Y = t₁ / (t₁ + 2 t₂)      D_k = k − (k + 1) Y t_{k+1} / t_k

    where t_k is how many n-grams were counted k times. Unless 0 < D_k ≤ k for all three, `FALLBACK`.
    """
    t: Array = np.bincount(np.minimum(counts, 5), minlength=6)[:5].astype(np.float64)
    if not t[1:4].all():
        return FALLBACK
    y = t[1] / (t[1] + 2 * t[2])
    found = [float(k - (k + 1) * y * t[k + 1] / t[k]) for k in (1, 2, 3)]
    if any(not 0 < d <= k for k, d in enumerate(found, start=1)):
        return FALLBACK
    return found[0], found[1], found[2]


def continuation_counts(levels: list[Level]) -> list[Array]:
    """Kneser-Ney's counts: below the highest order, how many different words come before the n-gram.

    Nothing comes before <s>, so n-grams that open with it keep their plain count.
    """
    found = []
    for level, above in pairwise(levels):
        before = np.bincount(above.suffix, minlength=len(level))
        found.append(np.where(level.opens, level.count, before))
    return [*found, levels[-1].count]


def estimate(
    levels: list[Level], kept: list[Array], method: str, k: float
) -> tuple[list[Estimate], list[Any]]:
    """Probabilities and γ of every order, and the discounts used (Kneser-Ney)."""
    symbols = len(levels[0])
    predicted = np.ones(symbols)
    predicted[[PAD, BOS]] = 0
    lower = predicted / predicted.sum()  # p of the order below, by its place
    used: list[Any] = []
    results = []
    counts = continuation_counts(levels) if method == "kneser-ney" else [level.count for level in levels]
    for n, level in enumerate(levels, start=1):
        c = counts[n - 1].astype(np.float64)
        histories = 1 if n == 1 else len(levels[n - 2])
        if method == "kneser-ney":
            d = discounts(counts[n - 1])
            used.append(list(d))
            taken: Array = np.array([0.0, *d])[np.minimum(counts[n - 1], 3)]
            extra: Array = np.zeros(histories)
        elif method == "witten-bell":
            taken = np.zeros(len(c))
            extra = np.bincount(level.parent, weights=c > 0, minlength=histories)
        else:
            # Plain add-k looks at one length of history; n-grams below it give all to the uniform floor.
            looked_at = level.opens if n < len(levels) else np.ones(len(c), dtype=np.bool_)
            taken = np.where(looked_at, 0.0, c)
            extra = np.full(histories, 0.0)
            extra[level.parent[looked_at]] = k * predicted.sum()
        taken = np.where(kept[n - 1], taken, c)
        results.append(_interpolate(level, c, taken, extra, lower if n == 1 else lower[level.suffix]))
        lower = results[-1].prob
    return results, used


def _interpolate(level: Level, c: Array, taken: Array, extra: Array, lower: Array) -> Estimate:
    """α = (c − taken) / (Σc + extra) and γ = (Σ taken + extra) / (Σc + extra), sums over a history's words."""
    total = np.bincount(level.parent, weights=c, minlength=len(extra)) + extra
    left = np.bincount(level.parent, weights=taken, minlength=len(extra)) + extra
    empty = total == 0
    gamma = np.where(empty, 1.0, left / np.where(empty, 1.0, total))
    alpha = (c - taken) / np.where(empty, 1.0, total)[level.parent]
    return Estimate(alpha + gamma[level.parent] * lower, gamma)
