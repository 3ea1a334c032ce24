"""Viterbi and posteriors of a hidden Markov model over the states a beam keeps, in logarithms.

After each step only the best states stay (`prune.choose`), and only they are gone on from: K · width operations a step
for K². With as many places as states the results are those of the exact recursions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.models.classical.hmm.passes import Floats, Ints, compiled
from anaphora.ops.prune import choose, new_table


@compiled
def viterbi_beam(
    log_b: Floats, log_start: Floats, log_A: Floats, width: int, distance: float, path: Ints
) -> float:
    """Fill the most probable path (T,) of one sequence that stays inside the beam; its log p(x, path)."""
    T, K = log_b.shape
    kept, before = np.empty((T, width), np.int64), np.empty((T, width), np.int64)
    counts = np.zeros(T, np.int64)
    came, score = np.zeros(K, np.int64), log_start + log_b[0]
    pool, table, reached = np.empty(K, np.int64), new_table(K), np.empty(width)
    for t in range(T):
        if t > 0:
            score[:] = -np.inf
            for place in range(counts[t - 1]):
                i = kept[t - 1, place]
                for j in range(K):
                    value = reached[place] + log_A[i, j]
                    if value > score[j]:
                        score[j], came[j] = value, place
            for j in range(K):
                score[j] += log_b[t, j]
        counts[t] = choose(score, pool, K, width, 0, distance, table, pool)
        for place in range(counts[t]):
            kept[t, place], before[t, place] = pool[place], came[pool[place]]
            reached[place] = score[pool[place]]
    if counts[T - 1] == 0:
        return -np.inf
    place = int(np.argmax(reached[: counts[T - 1]]))
    best = reached[place]
    for t in range(T - 1, -1, -1):
        path[t] = kept[t, place]
        place = before[t, place]
    return float(best)


@compiled
def posterior_beam(
    log_b: Floats, log_start: Floats, log_A: Floats, width: int, distance: float, gamma: Floats
) -> float:
    """Fill p(z_t | x) (T, K) over the paths inside the beam, 0 outside it; the log of their probability.

    α_t is pruned as the sums go forward; β_t goes back over the states that stayed.
    """
    T, K = log_b.shape
    alpha, kept = np.full((T, K), -np.inf), np.empty((T, width), np.int64)
    counts = np.zeros(T, np.int64)
    score, pool, table = log_start + log_b[0], np.empty(K, np.int64), new_table(K)
    for t in range(T):
        if t > 0:
            _spread(alpha[t - 1], kept[t - 1, : counts[t - 1]], log_A, score)
            for j in range(K):
                score[j] += log_b[t, j]
        counts[t] = choose(score, pool, K, width, 0, distance, table, pool)
        for place in range(counts[t]):
            kept[t, place] = pool[place]
            alpha[t, pool[place]] = score[pool[place]]
    last = kept[T - 1, : counts[T - 1]]
    total = _log_sum_at(alpha[T - 1], last)
    if total == -np.inf:
        return -np.inf
    beta, ahead = np.zeros(K), np.empty(K)
    for t in range(T - 1, -1, -1):
        if t < T - 1:
            following = kept[t + 1, : counts[t + 1]]
            for j in following:
                ahead[j] = beta[j] + log_b[t + 1, j]
            for place in range(counts[t]):
                i = kept[t, place]
                score[i] = -np.inf
                top = -np.inf
                for j in following:
                    top = max(top, log_A[i, j] + ahead[j])
                if top > -np.inf:
                    mass = 0.0
                    for j in following:
                        mass += np.exp(log_A[i, j] + ahead[j] - top)
                    score[i] = top + np.log(mass)
            for place in range(counts[t]):
                beta[kept[t, place]] = score[kept[t, place]]
        for place in range(counts[t]):
            i = kept[t, place]
            gamma[t, i] = np.exp(alpha[t, i] + beta[i] - total)
    return float(total)


@compiled
def _spread(alpha: Floats, kept: Ints, log_A: Floats, score: Floats) -> None:
    """score_j = log Σ_i exp(α_i + log A_ij) over the kept states i."""
    top = np.full(score.shape[0], -np.inf)
    for i in kept:
        for j in range(score.shape[0]):
            top[j] = max(top[j], alpha[i] + log_A[i, j])
    score[:] = 0.0
    for i in kept:
        for j in range(score.shape[0]):
            if top[j] > -np.inf:
                score[j] += np.exp(alpha[i] + log_A[i, j] - top[j])
    for j in range(score.shape[0]):
        score[j] = top[j] + np.log(score[j]) if top[j] > -np.inf else -np.inf


@compiled
def _log_sum_at(values: NDArray[Any], places: Ints) -> float:
    top, mass = -np.inf, 0.0
    for i in places:
        top = max(top, values[i])
    if top == -np.inf:
        return -np.inf
    for i in places:
        mass += np.exp(values[i] - top)
    return float(top + np.log(mass))
