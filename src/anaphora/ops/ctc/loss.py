"""log p(y | x) under CTC and its posteriors, by the forward–backward recursion on scaled probabilities.

The states of a target y₁ … y_U are its U symbols with a blank before, between and after them. They are kept as two
arrays, blanks b ``(U + 1)`` and labels l ``(U)``, because each kind has one recursion without branches:

    b_i ← (b_i + l_{i−1}) · p(blank)
    l_i ← (l_i + b_i + [y_i ≠ y_{i−1}] · l_{i−1}) · p(y_i)

Sums of probabilities need no logarithm, which makes this several times quicker than the log domain; each frame is
scaled to sum to one. What is smaller than about 1e-280 of its frame is lost, so a row says whether it can be trusted:
forward and backward pass must agree at every frame. The log domain (`ctc.log_domain`) does the rows where they do not.
"""

from __future__ import annotations

import numpy as np

from anaphora.native.jit import njit

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
