"""The best path of one input through the states of a known target (Viterbi)."""

from __future__ import annotations

import numpy as np
from numba import njit

from anaphora.kernels.ctc_loss_log import ctc_states


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
