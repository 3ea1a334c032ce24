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


# ----------------------------------------------------------------------
# Recursions over chains whose every state depends on the two before it.
#
# A sentence of T words has log emissions ``(T, K)``. Moves ``(K+1, K+1, K+1)`` hold a → b → c; K stands for what is
# before the first word and after the last:
#
#     s(y) = Σ_t moves[y_{t−2}, y_{t−1}, y_t] + e_t[y_t] + moves[y_{T−1}, y_T, K],    y_0 = y_{−1} = K
#
# Pairs of states make it a chain of first order; only the K³ moves between pairs that overlap are looked at.
@compiled
def viterbi(log_b: Floats, log_moves: Floats, path: Ints) -> float:
    """Fill the best path (T,) and return its score; of equal ones the lowest states.

    δ_t[b, c] = e_t[c] + max_a (δ_{t−1}[a, b] + moves[a, b, c])
    """
    T, K = log_b.shape
    delta = np.full((T, K + 1, K), -np.inf)
    delta[0, K] = log_moves[K, K, :K] + log_b[0]
    for t in range(1, T):
        for a in range(K + 1):
            for b in range(K):
                before = delta[t - 1, a, b]
                if before == -np.inf:
                    continue
                for c in range(K):
                    score = before + log_moves[a, b, c]
                    if score > delta[t, b, c]:
                        delta[t, b, c] = score
        for b in range(K):
            for c in range(K):
                delta[t, b, c] += log_b[t, c]
    top, b, c = -np.inf, 0, 0
    for i in range(K + 1):
        for j in range(K):
            score = delta[T - 1, i, j] + log_moves[i, j, K]
            if score > top:
                top, b, c = score, i, j
    path[T - 1] = c
    for t in range(T - 1, 0, -1):
        path[t - 1] = b
        best, earlier = -np.inf, 0
        for a in range(K + 1):
            score = delta[t - 1, a, b] + log_moves[a, b, c]
            if score > best:
                best, earlier = score, a
        b, c = earlier, b
    return top


@compiled
def marginals(likelihoods: Floats, moves: Floats, gamma: Floats) -> None:
    """Fill p(y_t = c | x) (T, K) from likelihoods (T, K) and moves, both as probabilities.

    α_t[b, c] ∝ Σ_a α_{t−1}[a, b] moves[a, b, c] l_t[c],    β_{t−1}[a, b] ∝ Σ_c moves[a, b, c] l_t[c] β_t[b, c]
    """
    T, K = likelihoods.shape
    alpha = np.zeros((T, K + 1, K))
    alpha[0, K] = moves[K, K, :K] * likelihoods[0]
    alpha[0] /= alpha[0].sum()
    for t in range(1, T):
        for a in range(K + 1):
            for b in range(K):
                before = alpha[t - 1, a, b]
                if before == 0.0:
                    continue
                for c in range(K):
                    alpha[t, b, c] += before * moves[a, b, c]
        for b in range(K):
            for c in range(K):
                alpha[t, b, c] *= likelihoods[t, c]
        alpha[t] /= alpha[t].sum()
    beta = moves[:, :K, K].copy()
    earlier = np.empty((K + 1, K))
    for t in range(T - 1, -1, -1):
        total = 0.0
        for c in range(K):
            gamma[t, c] = 0.0
            for b in range(K + 1):
                gamma[t, c] += alpha[t, b, c] * beta[b, c]
            total += gamma[t, c]
        gamma[t] /= total
        if t == 0:
            break
        for a in range(K + 1):
            for b in range(K):
                onward = 0.0
                for c in range(K):
                    onward += moves[a, b, c] * likelihoods[t, c] * beta[b, c]
                earlier[a, b] = onward
        beta[:] = earlier / earlier.max()
