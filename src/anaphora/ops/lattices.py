"""The sums over all alignments under CTC and under a transducer, on a CPU.

First CTC over the states of a known target in the log domain: forward–backward, slower than `ctc_rows` but right for any
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


# ----------------------------------------------------------------------
# log p(y | x) under CTC and its posteriors, by the forward–backward recursion on scaled probabilities.
#
# The states of a target y₁ … y_U are its U symbols with a blank before, between and after them. They are kept as two
# arrays, blanks b ``(U + 1)`` and labels l ``(U)``, because each kind has one recursion without branches:
#
#     b_i ← (b_i + l_{i−1}) · p(blank)
#     l_i ← (l_i + b_i + [y_i ≠ y_{i−1}] · l_{i−1}) · p(y_i)
#
# Sums of probabilities need no logarithm, which makes this several times quicker than the log domain; each frame is
# scaled to sum to one. What is smaller than about 1e-280 of its frame is lost, so a row says whether it can be trusted:
# forward and backward pass must agree at every frame. The log domain (`ctc.log_domain`) does the rows where they do not.
_LEAST = 1e-280
"""Below this a scaled value counts as zero: denormal numbers would slow every operation down."""
_LEAST_EMISSION = 1e-60
"""Frames with a rarer symbol of the target than this belong into the log domain."""

_SUMS = {"reassoc", "contract", "nsz"}  # lets sums run in vector registers; keeps NaN and infinity meaningful


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _forward(p, T, y, skip, blank, alpha_b, alpha_l, scales, emission):  # type: ignore[no-untyped-def]
    """Fill alpha_b (T, U + 1), alpha_l (T, U), each frame summing to one, and log scales (T,).

    Returns log p(y | x), or NaN where it cannot be trusted.
    """
    U = len(y)
    log_p = 0.0
    inverse = 1.0
    for t in range(T):
        row = p[t]
        blanks, labels = alpha_b[t], alpha_l[t]
        least = row[blank]
        for i in range(U):
            emission[i] = row[y[i]]
            least = min(least, emission[i])
        if not least >= _LEAST_EMISSION:
            return np.nan
        at_blank = row[blank] * inverse
        total = 0.0
        if t == 0:
            blanks[:] = 0.0
            labels[:] = 0.0
            blanks[0] = at_blank
            total = at_blank
            if U:
                labels[0] = emission[0]
                total += emission[0]
        else:
            before_b, before_l = alpha_b[t - 1], alpha_l[t - 1]
            blanks[0] = before_b[0] * at_blank
            total = blanks[0]
            if U:
                labels[0] = (before_l[0] + before_b[0]) * emission[0] * inverse
                blanks[U] = (before_b[U] + before_l[U - 1]) * at_blank
                total += labels[0] + blanks[U]
            for i in range(1, U):
                on_blank = (before_b[i] + before_l[i - 1]) * at_blank
                on_label = (before_l[i] + before_b[i] + skip[i] * before_l[i - 1]) * (emission[i] * inverse)
                on_blank = on_blank if on_blank > _LEAST else 0.0
                on_label = on_label if on_label > _LEAST else 0.0
                blanks[i] = on_blank
                labels[i] = on_label
                total += on_blank + on_label
        # The frame is stored before it is divided by its sum; the next one divides on its way.
        if not total > 0.0:
            return np.nan
        inverse = 1.0 / total
        log_p += np.log(total)
        scales[t] = log_p
    end = alpha_b[T - 1, U] + (alpha_l[T - 1, U - 1] if U else 0.0)
    if not end > _LEAST:
        return np.nan
    return log_p + np.log(end) + np.log(inverse)


@njit(cache=True, nogil=True, fastmath=_SUMS)
def _backward(p, T, y, skip, blank, alpha_b, alpha_l, scales, log_p, gamma_l, beta, gradient):  # type: ignore[no-untyped-def]
    """Subtract the posteriors γ from gradient (T, V); False if the frames do not agree on log p(y | x).

    beta (4, U + 1) holds β of blanks and labels and the same times the next frame's emissions.
    """
    U = len(y)
    beta_b, beta_l, next_b, next_l = beta[0], beta[1], beta[2], beta[3]
    beta[:] = 0.0
    beta_b[U] = 1.0
    if U:
        beta_l[U - 1] = 1.0
    log_beta = 0.0
    for t in range(T - 1, -1, -1):
        if t < T - 1:
            row = p[t + 1]
            total = 0.0
            for i in range(U):
                next_l[i] = beta_l[i] * row[y[i]]
                total += next_l[i]
            for i in range(U + 1):
                next_b[i] = beta_b[i] * row[blank]
                total += next_b[i]
            if not total > 0.0:
                return False
            inverse = 1.0 / total
            log_beta += np.log(total)
            beta_b[U] = next_b[U] * inverse
            for i in range(U):
                on_blank = (next_b[i] + next_l[i]) * inverse
                on_label = (next_l[i] + next_b[i + 1] + skip[i + 1] * next_l[i + 1]) * inverse
                beta_b[i] = on_blank if on_blank > _LEAST else 0.0
                beta_l[i] = on_label if on_label > _LEAST else 0.0
        blanks, labels = alpha_b[t], alpha_l[t]
        at_blank = 0.0
        at_labels = 0.0
        for i in range(U + 1):
            at_blank += blanks[i] * beta_b[i]
        for i in range(U):
            gamma_l[i] = labels[i] * beta_l[i]
            at_labels += gamma_l[i]
        mass = at_blank + at_labels
        before = scales[t - 1] if t else 0.0
        if not (mass > 0.0 and abs(np.log(mass) + before + log_beta - log_p) < 1e-9 * (T + abs(log_p))):
            return False
        inverse = 1.0 / mass
        gradient[t, blank] -= at_blank * inverse
        for i in range(U):
            gradient[t, y[i]] -= gamma_l[i] * inverse
    return True


@njit(cache=True, nogil=True)
def ctc_rows(p, lengths, targets, target_lengths, blank, losses, gradient):  # type: ignore[no-untyped-def]
    """−log p(y | x) of each row into losses (B,), minus the posteriors onto gradient (B, T, V) if it has rows.

    p (B, T, V) are probabilities. losses is NaN for a row left to the log domain; its gradient is not to be used.
    """
    B, T, V = p.shape
    most = targets.shape[1]
    alpha_b, alpha_l = np.empty((T, most + 1)), np.empty((T, most))
    scales, emission, skip = np.empty(T), np.empty(most), np.zeros(most + 1)
    gamma_l, beta = np.empty(most), np.empty((4, most + 1))
    with_gradient = gradient.shape[0] > 0
    unused = np.zeros((0 if with_gradient else T, V))
    for n in range(B):
        U, frames = target_lengths[n], lengths[n]
        if frames == 0:
            losses[n] = 0.0 if U == 0 else np.inf
            continue
        y = targets[n, :U]
        skip[:] = 0.0
        for i in range(1, U):
            skip[i] = 1.0 if y[i] != y[i - 1] else 0.0
        a_b, a_l = alpha_b[:, : U + 1], alpha_l[:, :U]
        log_p = _forward(p[n], frames, y, skip, blank, a_b, a_l, scales, emission)
        if np.isnan(log_p):
            losses[n] = np.nan
            continue
        # Also without a gradient: only the way back shows whether the way there lost something.
        spent = gradient[n] if with_gradient else unused
        agreed = _backward(
            p[n], frames, y, skip, blank, a_b, a_l, scales, log_p, gamma_l, beta[:, : U + 1], spent
        )
        losses[n] = -log_p if agreed else np.nan


# ----------------------------------------------------------------------
# The sums over all ways through the lattice of a transducer (Graves 2012), in the log domain, on a CPU.
#
# Node (t, u) means: t frames are done and u symbols are written. From it the blank leads to (t + 1, u) and the next symbol to (t, u + 1):
#
#     α(0, 0) = 0            α(t, u) = log(e^{α(t−1, u) + ∅(t−1, u)} + e^{α(t, u−1) + y(t, u−1)})
#     β(T−1, U) = ∅(T−1, U)  β(t, u) = log(e^{β(t+1, u) + ∅(t, u)}   + e^{β(t, u+1) + y(t, u)})
#
# with ∅(t, u) and y(t, u) the log-probabilities of the blank and of symbol u + 1 of the target; log p(y | x) = β(0, 0).
@njit(cache=True, nogil=True)
def transducer_rows(blank, label, frames, sizes, alpha, beta):  # type: ignore[no-untyped-def]
    """α and β (B, T, U + 1) of ∅ and y of the same shape; row b has ``frames[b]`` frames and ``sizes[b]`` symbols.

    Nodes outside of a row become −∞.
    """
    alpha[:] = -np.inf
    beta[:] = -np.inf
    for b in range(len(blank)):
        T, U = frames[b], sizes[b]
        if T == 0:
            continue
        for t in range(T):
            for u in range(U + 1):
                if t == 0 and u == 0:
                    alpha[b, 0, 0] = 0.0
                    continue
                reached = -np.inf
                if t > 0:
                    reached = alpha[b, t - 1, u] + blank[b, t - 1, u]
                if u > 0:
                    reached = log_add(reached, alpha[b, t, u - 1] + label[b, t, u - 1])
                alpha[b, t, u] = reached
        for t in range(T - 1, -1, -1):
            for u in range(U, -1, -1):
                if t == T - 1 and u == U:
                    beta[b, t, u] = blank[b, t, u]
                    continue
                left = -np.inf
                if t + 1 < T:
                    left = beta[b, t + 1, u] + blank[b, t, u]
                if u < U:
                    left = log_add(left, beta[b, t, u + 1] + label[b, t, u])
                beta[b, t, u] = left
