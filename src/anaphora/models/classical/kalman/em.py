"""One step of expectation-maximisation for any subset of a state-space model's parameters (Shumway & Stoffer 1982).

The expectations are the smoother's; the maximisation is least squares for [A B] and [C D] and the mean squared
residual for Q and R. Outputs that are missing beside present ones are filled in by their distribution given those
and the state, so the step is exact and never lowers the likelihood.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from anaphora.models.classical.kalman.passes import run_smoother
from anaphora.models.classical.kalman.results import Smoothed

Floats = NDArray[np.float64]


def em_step(
    p: dict[str, Floats], y: Floats, x: Floats, free: Collection[str], diagonal: Collection[str]
) -> tuple[dict[str, Floats], float]:
    """New parameters, and the log-likelihood of the old ones summed over series.

    y (series, T, m) with NaN where missing, x (series, T, k); ``free`` names what is estimated, ``diagonal`` those of
    Q and R that stay diagonal.
    """
    smoothed = run_smoother(p, y, x)
    new = dict(p)
    if {"A", "B", "Q"} & set(free) and y.shape[1] > 1:
        _transition(new, smoothed, x, free, diagonal)
    if {"C", "D", "R"} & set(free):
        _emission(new, smoothed, y, x, free, diagonal)
    first = smoothed.mean[:, 0]
    if "mean" in free:
        new["mean"] = first.mean(0)
    if "covariance" in free:
        away = first - new["mean"]
        new["covariance"] = _symmetric((away.T @ away + smoothed.covariance[:, 0].sum(0)) / len(y))
    return new, float(smoothed.log_likelihood.sum())


def _transition(
    p: dict[str, Floats], smoothed: Smoothed, x: Floats, free: Collection[str], diagonal: Collection[str]
) -> None:
    """Update A, B, Q in place from E[hₜ], E[hₜ hₜ₋₁ᵀ], E[hₜ hₜᵀ] for t = 2 … T."""
    mean, covariance, lag = smoothed.mean, smoothed.covariance, smoothed.lag_covariance
    now, before = mean[:, 1:], mean[:, :-1]
    V, V_before, x = covariance[:, 1:], covariance[:, :-1], x[:, 1:]
    if {"A", "B"} & set(free):
        p["A"], p["B"] = _regression(
            p["A"], p["B"], now, before, x, lag.sum((0, 1)), V_before.sum((0, 1)), "A" in free, "B" in free
        )
    if "Q" in free:
        A, B = _over(p["A"], 1, now.shape[1]), _over(p["B"], 1, now.shape[1])
        rest = now - np.einsum("tij,stj->sti", A, before) - np.einsum("tij,stj->sti", B, x)
        carried = np.einsum("tij,stkj->ik", A, lag)
        total = np.einsum("sti,stj->ij", rest, rest) + V.sum((0, 1)) - carried - carried.T
        total += np.einsum("tij,tjk,tlk->il", A, V_before.sum(0), A)
        p["Q"] = _variance(total / (rest.shape[0] * rest.shape[1]), p["Q"], "Q" in diagonal)


def _emission(
    p: dict[str, Floats],
    smoothed: Smoothed,
    y: Floats,
    x: Floats,
    free: Collection[str],
    diagonal: Collection[str],
) -> None:
    """Update C, D, R in place from the steps with at least one output present."""
    steps = y.shape[1]
    seen = ~np.isnan(y).all(-1)
    if not seen.any():
        return
    t = np.broadcast_to(np.arange(steps), seen.shape)[seen]
    h, V, x, y = smoothed.mean[seen], smoothed.covariance[seen], x[seen], y[seen]
    output, y_h, y_y = _completed(p, h, V, x, y, t)
    if {"C", "D"} & set(free):
        p["C"], p["D"] = _regression(
            p["C"], p["D"], output[None], h[None], x[None], y_h.sum(0), V.sum(0), "C" in free, "D" in free
        )
    if "R" in free:
        C, D = (_over(p[name], 0, steps)[t] for name in ("C", "D"))
        rest = output - np.einsum("tij,tj->ti", C, h) - np.einsum("tij,tj->ti", D, x)
        carried = np.einsum("tij,tkj->ik", C, y_h)
        total = rest.T @ rest + y_y.sum(0) - carried - carried.T + np.einsum("tij,tjk,tlk->il", C, V, C)
        p["R"] = _variance(total / len(rest), p["R"], "R" in diagonal)


def _completed(
    p: dict[str, Floats], h: Floats, V: Floats, x: Floats, y: Floats, t: NDArray[np.intp]
) -> tuple[Floats, Floats, Floats]:
    """E[y] (N, m), Cov(y, h) (N, m, n) and Cov(y) (N, m, m) given all that was seen; zero where y was seen.

    With o present and u missing: y_u = C_u h + D_u x + R_uo R_oo⁻¹ (y_o − C_o h − D_o x) + e, Cov e = R_uu − R_uo R_oo⁻¹ R_ou.
    """
    mean = y.copy()
    y_h = np.zeros((*y.shape, h.shape[-1]))
    y_y = np.zeros((*y.shape, y.shape[-1]))
    real = ~np.isnan(y)
    for pattern in np.unique(real[~real.all(1)], axis=0):
        rows = np.flatnonzero((real == pattern).all(1))
        o, u = np.flatnonzero(pattern), np.flatnonzero(~pattern)
        C, D, R = (p[name][t[rows] if len(p[name]) > 1 else np.zeros(len(rows), int)] for name in "CDR")
        R_oo, R_uo = R[:, o[:, None], o], R[:, u[:, None], o]
        weight = np.swapaxes(np.linalg.pinv(R_oo, hermitian=True) @ np.swapaxes(R_uo, 1, 2), 1, 2)
        M = C[:, u] - weight @ C[:, o]
        offset = D[:, u] @ x[rows, :, None] + weight @ (y[rows][:, o, None] - D[:, o] @ x[rows, :, None])
        mean[rows[:, None], u] = (M @ h[rows, :, None] + offset)[..., 0]
        y_h[rows[:, None], u] = M @ V[rows]
        rest = R[:, u[:, None], u] - weight @ np.swapaxes(R_uo, 1, 2)
        y_y[rows[:, None, None], u[:, None], u] = M @ V[rows] @ np.swapaxes(M, 1, 2) + rest
    return mean, y_h, y_y


def _regression(
    first: Floats,
    second: Floats,
    target: Floats,
    h: Floats,
    x: Floats,
    target_h: Floats,
    h_h: Floats,
    first_free: bool,
    second_free: bool,
) -> tuple[Floats, Floats]:
    """[first second] that minimise E|target − first h − second x|²; a fixed one keeps its value.

    target_h = Σ Cov(target, h) and h_h = Σ Cov(h) are what the means leave out.
    """
    n = h.shape[-1]
    z = np.concatenate([h, x], -1).reshape(-1, n + x.shape[-1])
    moments = z.T @ z
    moments[:n, :n] += h_h
    cross = target.reshape(-1, target.shape[-1]).T @ z
    cross[:, :n] += target_h
    free = np.concatenate([np.full(n, first_free), np.full(x.shape[-1], second_free)])
    weights = np.concatenate([first[0], second[0]], -1)
    right = cross[:, free] - weights[:, ~free] @ moments[~free][:, free]
    scale = np.sqrt(np.maximum(np.diag(moments)[free], np.finfo(float).tiny))
    scaled = moments[free][:, free] / scale / scale[:, None]
    weights[:, free] = np.linalg.lstsq(scaled, (right / scale).T, rcond=None)[0].T / scale
    return np.ascontiguousarray(weights[None, :, :n]), np.ascontiguousarray(weights[None, :, n:])


def _over(M: Floats, begin: int, steps: int) -> Floats:
    """M at each of ``steps`` steps from ``begin``: (steps, rows, columns)."""
    return np.broadcast_to(M, (steps, *M.shape[1:])) if len(M) == 1 else M[begin : begin + steps]


def _variance(total: Floats, old: Floats, diagonal: bool) -> Floats:
    if not diagonal:
        return np.ascontiguousarray(_symmetric(total)[None])
    # where there was no variance there is none now, but for rounding
    return np.diag(np.where(np.diag(old[0]) > 0, np.maximum(np.diag(total), 0.0), 0.0))[None]


def _symmetric(matrix: Floats) -> Floats:
    return np.ascontiguousarray((matrix + matrix.T) / 2)
