"""Recursions of the hidden Markov model over many sequences laid end to end.

Axes: N steps of all sequences together, K states, D features. ``bounds`` (S+1,) holds where each of S sequences
begins and the last one ends. The scaled recursions work on likelihoods whose greatest entry per step is 1:

    α_t(j) ∝ b_t(j) Σ_i α_{t−1}(i) A_ij,   c_t = Σ_j α_t(j) before scaling,   log p(x) = Σ_t log c_t
    β_t(i) = Σ_j A_ij b_{t+1}(j) β_{t+1}(j) / c_{t+1},   γ_t = α_t β_t

Inner loops run along rows of contiguous arrays, so that they vectorise without reordering any sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from anaphora.native.jit import njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
F = TypeVar("F", bound=Callable[..., Any])

FAINT = 1e-200  # below this a product of two such numbers would no longer be a normal float64
LOWEST = -700.0  # exp of it is still a normal float64: what is merely unlikely never becomes impossible


def compiled(function: F) -> F:
    """Compile to machine code at the first call, keep it on disk, and let other threads run meanwhile."""
    return cast(F, njit(cache=True, nogil=True)(function))


@compiled
def forward(
    b: Floats, bounds: Ints, start: Floats, A: Floats, watch: bool, alpha: Floats, scale: Floats, fine: Flags
) -> None:
    """Fill α (N, K) and c (N,); ``fine`` (S,) turns False where a sequence needs the exact recursion in logs.

    With ``watch`` every reachable state is checked: where transitions are forbidden, a state that underflows
    may be the only way on.
    """
    K = start.shape[0]
    predicted = np.empty(K)
    for s in range(bounds.shape[0] - 1):
        fine[s] = True
        for t in range(bounds[s], bounds[s + 1]):
            if t == bounds[s]:
                predicted[:] = start
            else:
                predicted[:] = 0.0
                for i in range(K):
                    before = alpha[t - 1, i]
                    for j in range(K):
                        predicted[j] += before * A[i, j]
            total = 0.0
            for j in range(K):
                alpha[t, j] = predicted[j] * b[t, j]
            for j in range(K):
                total += alpha[t, j]
            if total < FAINT:
                fine[s] = False
            if watch:
                for j in range(K):
                    if predicted[j] > 0.0 and b[t, j] > 0.0 and alpha[t, j] < FAINT * total:
                        fine[s] = False
            if not fine[s]:
                break
            scale[t] = total
            share = 1.0 / total
            for j in range(K):
                alpha[t, j] *= share


@compiled
def backward(
    b: Floats, bounds: Ints, A_transposed: Floats, alpha: Floats, scale: Floats, fine: Flags, pairs: Floats
) -> None:
    """Turn α into γ in place and add Σ_t α_{t−1}(i) b_t(j) β_t(j) / c_t to ``pairs`` (K, K).

    ``pairs`` times A, entry by entry, is the expected number of transitions.
    """
    K = alpha.shape[1]
    beta = np.empty(K)
    onward = np.empty(K)
    for s in range(bounds.shape[0] - 1):
        if not fine[s]:
            continue
        beta[:] = 1.0
        for t in range(bounds[s + 1] - 1, bounds[s] - 1, -1):
            share = 1.0 / scale[t]
            for j in range(K):
                # an unreachable state has no part in any path, and its β may grow without bound
                onward[j] = b[t, j] * beta[j] * share if alpha[t, j] > 0.0 else 0.0
            for j in range(K):
                alpha[t, j] *= beta[j]
            if t > bounds[s]:
                beta[:] = 0.0
                for i in range(K):
                    before = alpha[t - 1, i]
                    ahead = onward[i]
                    for j in range(K):
                        pairs[i, j] += before * onward[j]
                        beta[j] += A_transposed[i, j] * ahead


@compiled
def log_sum(values: Floats) -> float:
    """log Σ exp(values), −inf for nothing but −inf."""
    top = values.max()
    if top == -np.inf:
        return -np.inf
    total = 0.0
    for v in values:
        total += np.exp(v - top)
    return float(top + np.log(total))


@compiled
def exact(
    log_b: Floats, log_start: Floats, log_A: Floats, filtered: Floats, gamma: Floats, transitions: Floats
) -> float:
    """One sequence in logarithms: fill log p(z_t | x_1..t) and γ (T, K), add the expected transitions; log p(x)."""
    T, K = log_b.shape
    buffer = np.empty(K)
    alpha = np.empty((T, K))
    for t in range(T):
        for j in range(K):
            if t == 0:
                alpha[t, j] = log_start[j] + log_b[t, j]
            else:
                for i in range(K):
                    buffer[i] = alpha[t - 1, i] + log_A[i, j]
                alpha[t, j] = log_sum(buffer) + log_b[t, j]
        total = log_sum(alpha[t])
        if total == -np.inf:
            return -np.inf
        for j in range(K):
            filtered[t, j] = alpha[t, j] - total
    likelihood = log_sum(alpha[T - 1])
    beta = np.zeros(K)
    earlier = np.empty(K)
    for t in range(T - 1, -1, -1):
        for j in range(K):
            gamma[t, j] = np.exp(alpha[t, j] + beta[j] - likelihood)
        if t == 0:
            break
        for i in range(K):
            for j in range(K):
                buffer[j] = log_A[i, j] + log_b[t, j] + beta[j]
                transitions[i, j] += np.exp(alpha[t - 1, i] + buffer[j] - likelihood)
            earlier[i] = log_sum(buffer)
        beta[:] = earlier
    return likelihood


@compiled
def viterbi(
    delta: Floats, bounds: Ints, log_start: Floats, log_A: Floats, path: Ints, scores: Floats
) -> None:
    """Fill the most probable paths (N,) and their log p(x, path) (S,); ``delta`` (N, K) comes as log b.

    δ_t(j) = b_t(j) max_i δ_{t−1}(i) A_ij. Which i it was is asked again on the way back, for one j only: cheaper
    than keeping it for all of them.
    """
    K = log_start.shape[0]
    best = np.empty(K)
    for s in range(bounds.shape[0] - 1):
        low, high = bounds[s], bounds[s + 1]
        delta[low] += log_start
        for t in range(low + 1, high):
            last, here = delta[t - 1], delta[t]
            best[:] = -np.inf
            for i in range(0, K - 1, 2):  # two at a time: half the trips of ``best`` to memory and back
                for j in range(K):
                    one, two = last[i] + log_A[i, j], last[i + 1] + log_A[i + 1, j]
                    score = one if one > two else two
                    best[j] = score if score > best[j] else best[j]
            if K % 2:
                for j in range(K):
                    score = last[K - 1] + log_A[K - 1, j]
                    best[j] = score if score > best[j] else best[j]
            for j in range(K):
                here[j] += best[j]
        state = int(np.argmax(delta[high - 1]))
        scores[s] = delta[high - 1, state]
        path[high - 1] = state
        for t in range(high - 2, low - 1, -1):
            top, earlier, here = -np.inf, 0, delta[t]
            for i in range(K):
                score = here[i] + log_A[i, state]
                if score > top:
                    top, earlier = score, i
            state = earlier
            path[t] = state


@compiled
def k_best(log_b: Floats, log_start: Floats, log_A: Floats, paths: Ints, scores: Floats) -> None:
    """Fill the most probable paths (k, T) and their log p(x, path) (k,), best first; −inf where there are fewer."""
    T, K = log_b.shape
    k = scores.shape[0]
    states = np.zeros((T, K, k), dtype=np.int32)
    ranks = np.zeros((T, K, k), dtype=np.int32)
    delta = np.full((K, k), -np.inf)
    delta[:, 0] = log_start + log_b[0]
    fresh = np.empty((K, k))
    for t in range(1, T):
        fresh[:] = -np.inf
        for j in range(K):
            for i in range(K):
                for r in range(k):
                    score = delta[i, r] + log_A[i, j]
                    if not score > fresh[j, k - 1]:
                        break  # the ranks of a state are sorted: the rest is no better
                    place = k - 1
                    while place > 0 and score > fresh[j, place - 1]:
                        fresh[j, place] = fresh[j, place - 1]
                        states[t, j, place] = states[t, j, place - 1]
                        ranks[t, j, place] = ranks[t, j, place - 1]
                        place -= 1
                    fresh[j, place] = score
                    states[t, j, place] = i
                    ranks[t, j, place] = r
        for j in range(K):
            for r in range(k):
                delta[j, r] = fresh[j, r] + log_b[t, j]
    order = np.argsort(-delta.ravel(), kind="mergesort")
    for n in range(k):
        scores[n] = -np.inf
        if n >= order.shape[0]:
            continue
        state, rank = order[n] // k, order[n] % k
        scores[n] = delta[state, rank]
        if scores[n] == -np.inf:
            continue
        for t in range(T - 1, -1, -1):
            paths[n, t] = state
            state, rank = states[t, state, rank], ranks[t, state, rank]


@compiled
def axis_log_density(x: Floats, means: Floats, precisions: Floats, out: Floats) -> None:
    """Log density (N, K) of Gaussians with independent axes for x (N, D), with means and 1/variances as (D, K); NaN adds nothing."""
    N, D = x.shape
    K = out.shape[1]
    half_log = 0.5 * np.log(precisions / (2.0 * np.pi))
    for n in range(N):
        out[n] = 0.0
        for d in range(D):
            value = x[n, d]
            if np.isnan(value):
                continue
            for k in range(K):
                off = value - means[d, k]
                out[n, k] += half_log[d, k] - 0.5 * off * off * precisions[d, k]


@compiled
def axis_moments(
    x: Floats, gamma: Floats, means: Floats, weight: Floats, first: Floats, second: Floats
) -> None:
    """Add Σγ, Σγ(x−m), Σγ(x−m)² over the observed entries to arrays (D, K); m is ``means`` (D, K)."""
    N, D = x.shape
    K = gamma.shape[1]
    for n in range(N):
        for d in range(D):
            value = x[n, d]
            if np.isnan(value):
                continue
            for k in range(K):
                off = value - means[d, k]
                part = gamma[n, k] * off
                weight[d, k] += gamma[n, k]
                first[d, k] += part
                second[d, k] += part * off


@compiled
def below_best(log_b: Floats, best: Floats) -> None:
    """Subtract each row's greatest entry, kept in ``best`` (N,); finite results stay above ``LOWEST``."""
    N, K = log_b.shape
    for n in range(N):
        top = log_b[n, 0]
        for k in range(1, K):
            top = max(top, log_b[n, k])
        if top == -np.inf:
            best[n] = 0.0
            continue
        best[n] = top
        for k in range(K):
            value = log_b[n, k] - top
            log_b[n, k] = value if value > LOWEST or value == -np.inf else LOWEST


@compiled
def symbol_counts(x: Ints, gamma: Floats, counts: Floats) -> None:
    """Add γ_t to the row of ``counts`` (V, K) of the symbol seen at t; −1 is a missing one."""
    for n in range(x.shape[0]):
        if x[n] >= 0:
            for k in range(gamma.shape[1]):
                counts[x[n], k] += gamma[n, k]
