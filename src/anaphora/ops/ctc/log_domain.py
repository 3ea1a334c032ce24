"""CTC over the states of a known target in the log domain: forward–backward, slower than `ctc.loss` but right for any
input, and the best path.

The 2U + 1 states are blank, y₁, blank, …, y_U, blank (Graves et al. 2006):

    α_t(s) = log p_t(s) + log Σ exp {α_{t−1}(s), α_{t−1}(s−1), α_{t−1}(s−2) if s is a label unlike the one before}
"""

from __future__ import annotations

import numpy as np

from anaphora.native.jit import njit


@njit(cache=True, nogil=True)
def log_add(a, b):  # type: ignore[no-untyped-def]
    """log(eᵃ + eᵇ), also where one or both are −∞."""
    high, low = (a, b) if a >= b else (b, a)
    if low == -np.inf:
        return high
    return high + np.log1p(np.exp(low - high))


@njit(cache=True, nogil=True)
def ctc_states(y, blank):  # type: ignore[no-untyped-def]
    """The symbols (2U + 1) of the states, and whether each may be entered from two before it."""
    states = np.full(2 * len(y) + 1, blank, np.int64)
    skip = np.zeros(len(states), np.bool_)
    for i in range(len(y)):
        states[2 * i + 1] = y[i]
        skip[2 * i + 1] = i > 0 and y[i] != y[i - 1]
    return states, skip


@njit(cache=True, nogil=True)
def ctc_row_log(log_p, y, blank, gradient):  # type: ignore[no-untyped-def]
    """−log p(y | x) of one row of log-probabilities (T, V); minus the posteriors onto gradient (T, V).

    Infinite when no path spells y; the gradient is then left as it is.
    """
    T = len(log_p)
    states, skip = ctc_states(y, blank)
    S = len(states)
    alpha = np.full((T, S), -np.inf)
    for t in range(T):
        for s in range(S):
            if t == 0:
                before = 0.0 if s < 2 else -np.inf
            else:
                before = alpha[t - 1, s]
                if s > 0:
                    before = log_add(before, alpha[t - 1, s - 1])
                if skip[s]:
                    before = log_add(before, alpha[t - 1, s - 2])
            alpha[t, s] = before + log_p[t, states[s]]
    total = alpha[T - 1, S - 1]
    if S > 1:
        total = log_add(total, alpha[T - 1, S - 2])
    if total == -np.inf:
        return np.inf
    beta = np.full(S, -np.inf)
    beta[max(S - 2, 0) :] = 0.0
    ahead = np.empty(S)
    for t in range(T - 1, -1, -1):
        if t < T - 1:
            for s in range(S):
                ahead[s] = beta[s] + log_p[t + 1, states[s]]
            for s in range(S):
                after = ahead[s]
                if s + 1 < S:
                    after = log_add(after, ahead[s + 1])
                if s + 2 < S and skip[s + 2]:
                    after = log_add(after, ahead[s + 2])
                beta[s] = after
        for s in range(S):
            gradient[t, states[s]] -= np.exp(alpha[t, s] + beta[s] - total)
    return -total


@njit(cache=True, nogil=True)
def best_path(log_p, y, blank):  # type: ignore[no-untyped-def]
    """The states (T,) of the best path that spells y, 2i + 1 for its symbol i and even for blanks; and its log p.

    log_p is (T, V). The log-probability is −∞ when no path spells y. Equal paths: the one that moves on last.
    """
    T = len(log_p)
    states, skip = ctc_states(y, blank)
    S = len(states)
    path = np.zeros(T, np.int64)
    if T == 0:
        return path, 0.0 if S == 1 else -np.inf
    came = np.zeros((T, S), np.int8)  # by how many states the best path into each moved
    now, before = np.full(S, -np.inf), np.empty(S)
    now[0] = log_p[0, blank]
    if S > 1:
        now[1] = log_p[0, states[1]]
    for t in range(1, T):
        now, before = before, now
        for s in range(S):
            best, move = before[s], 0
            if s > 0 and before[s - 1] > best:
                best, move = before[s - 1], 1
            if skip[s] and before[s - 2] > best:
                best, move = before[s - 2], 2
            now[s] = best + log_p[t, states[s]]
            came[t, s] = move
    state = S - 1
    if S > 1 and now[S - 2] > now[S - 1]:
        state = S - 2
    total = now[state]
    for t in range(T - 1, -1, -1):
        path[t] = state
        state -= came[t, state]
    return path, total
