"""Recursions over chains whose every state depends on the two before it.

A sentence of T words has log emissions ``(T, K)``. Moves ``(K+1, K+1, K+1)`` hold a → b → c; K stands for what is
before the first word and after the last:

    s(y) = Σ_t moves[y_{t−2}, y_{t−1}, y_t] + e_t[y_t] + moves[y_{T−1}, y_T, K],    y_0 = y_{−1} = K

Pairs of states make it a chain of first order; only the K³ moves between pairs that overlap are looked at.
"""

from __future__ import annotations

import numpy as np

from anaphora.models.classical.hmm.passes import Floats, Ints, compiled


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
