"""Filter and smoother over batches: the covariances once per pattern of missing entries, the means per series."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import DataError
from anaphora.models.classical.kalman import recursions as kernel

# ----------------------------------------------------------------------------
# What filtering, smoothing and forecasting give. Without a batch axis in, there is none out.

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Filtered:
    """p(hₜ | y₁ … yₜ), and before yₜ was seen p(hₜ | y₁ … yₜ₋₁).

    mean, predicted_mean (series, time, n); covariance, predicted_covariance (series, time, n, n), read-only views
    where series share them; log_likelihood (series,).
    """

    mean: Floats
    covariance: Floats
    predicted_mean: Floats
    predicted_covariance: Floats
    log_likelihood: Any


@dataclass(frozen=True)
class Smoothed:
    """p(hₜ | y₁ … y_T): mean (series, time, n), covariance (series, time, n, n).

    gain (series, time, n, n) is the smoother's J, zero at the last step; log_likelihood (series,).
    """

    mean: Floats
    covariance: Floats
    gain: Floats
    log_likelihood: Any

    @property
    def lag_covariance(self) -> Floats:
        """Cov(hₜ₊₁, hₜ | y₁ … y_T) = Vₜ₊₁ Jₜᵀ: (series, time − 1, n, n)."""
        lag: Floats = self.covariance[..., 1:, :, :] @ np.swapaxes(self.gain[..., :-1, :, :], -1, -2)
        return lag


@dataclass(frozen=True)
class Forecast:
    """The outputs ahead: mean (series, steps, m), covariance (series, steps, m, m), and the interval low … high
    (series, steps, m), which holds each value with probability ``level``."""

    mean: Floats
    covariance: Floats
    low: Floats
    high: Floats
    level: float


Result = TypeVar("Result", Filtered, Smoothed, Forecast)


def first_series(result: Result) -> Result:
    """The same without the batch axis; a log-likelihood becomes a float."""
    values = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, np.ndarray):
            value = float(value[0]) if value.ndim == 1 else value[0]
        values[field.name] = value
    return type(result)(**values)


# ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pattern:
    """The series that miss the same entries, and the covariances they share."""

    rows: NDArray[np.intp]
    real: NDArray[np.bool_]
    predicted: Floats
    filtered: Floats
    gain: Floats
    whitening: Floats
    constant: float  # the part of the log-likelihood that does not depend on the values


@dataclass(frozen=True)
class _Run:
    patterns: list[_Pattern]
    predicted: list[Floats]  # (T, n, series of the pattern)
    filtered: list[Floats]
    log_likelihood: Floats


def log_likelihoods(p: dict[str, Floats], y: Floats, x: Floats) -> Floats:
    """log p(y₁ … y_T) of each series: (series,)."""
    return _forward(p, y, x).log_likelihood


def run_filter(p: dict[str, Floats], y: Floats, x: Floats) -> Filtered:
    """y (series, T, m) with NaN where missing, x (series or 1, T, k)."""
    run = _forward(p, y, x)
    return Filtered(
        mean=_gather(run.patterns, run.filtered),
        covariance=_gather_shared(run.patterns, [g.filtered for g in run.patterns]),
        predicted_mean=_gather(run.patterns, run.predicted),
        predicted_covariance=_gather_shared(run.patterns, [g.predicted for g in run.patterns]),
        log_likelihood=run.log_likelihood,
    )


def run_smoother(p: dict[str, Floats], y: Floats, x: Floats) -> Smoothed:
    """Both passes; shapes as in ``run_filter``."""
    run = _forward(p, y, x)
    means, covariances, gains = [], [], []
    for g, predicted, filtered in zip(run.patterns, run.predicted, run.filtered, strict=True):
        V, J = kernel.backward_covariances(p["A"], p["Q"], g.predicted, g.filtered)
        means.append(kernel.backward_means(predicted, filtered, J))
        covariances.append(V)
        gains.append(J)
    return Smoothed(
        mean=_gather(run.patterns, means),
        covariance=_gather_shared(run.patterns, covariances),
        gain=_gather_shared(run.patterns, gains),
        log_likelihood=run.log_likelihood,
    )


def _forward(p: dict[str, Floats], y: Floats, x: Floats) -> _Run:
    patterns = _covariances(p, ~np.isnan(y))
    b, d = _added(p["B"], x), _added(p["D"], x)
    run = _Run(patterns, [], [], np.empty(len(y)))
    for g in patterns:
        values = np.ascontiguousarray(y[g.rows].transpose(1, 2, 0))
        own_b, own_d = (z if z.shape[2] == 1 else np.ascontiguousarray(z[:, :, g.rows]) for z in (b, d))
        predicted = np.empty((y.shape[1], len(p["mean"]), len(g.rows)))
        filtered = np.empty_like(predicted)
        squares = kernel.forward_means(
            p["A"], p["C"], own_b, own_d, p["mean"], values, g.real, g.gain, g.whitening, predicted, filtered
        )
        run.log_likelihood[g.rows] = g.constant - 0.5 * squares
        run.predicted.append(predicted)
        run.filtered.append(filtered)
    return run


def _covariances(p: dict[str, Floats], real: NDArray[np.bool_]) -> list[_Pattern]:
    if real.all():
        rows_of = {b"": list(range(len(real)))}
    else:
        rows_of = {}
        for row, pattern in enumerate(real):
            rows_of.setdefault(pattern.tobytes(), []).append(row)
    patterns = []
    for rows in rows_of.values():
        pattern = real[rows[0]]
        predicted, filtered, gain, whitening, log_determinant, singular = kernel.forward_covariances(
            p["A"], p["C"], p["Q"], p["R"], p["covariance"], pattern
        )
        if singular >= 0:
            raise DataError(
                f"Kalman: the outputs of step {singular + 1} have a singular covariance C P Cᵀ + R; "
                "give every output some noise in R."
            )
        constant = -0.5 * (pattern.sum() * np.log(2 * np.pi) + log_determinant.sum())
        patterns.append(
            _Pattern(np.array(rows), pattern, predicted, filtered, gain, whitening, float(constant))
        )
    return patterns


def _added(M: Floats, x: Floats) -> Floats:
    """What the inputs add, M x: (T, rows, series or 1), or (1, rows, 1) without inputs."""
    if M.shape[2] == 0:
        return np.zeros((1, M.shape[1], 1))
    steps = x.shape[1]
    over_time = np.broadcast_to(M, (steps, *M.shape[1:])) if len(M) == 1 else M[:steps]
    return np.ascontiguousarray(np.einsum("tij,stj->tis", over_time, x))


def _gather(patterns: list[_Pattern], parts: list[Floats]) -> Floats:
    """(T, n, series of a pattern) each → (series, T, n)."""
    if len(patterns) == 1:
        return parts[0].transpose(2, 0, 1)
    out = np.empty((sum(len(g.rows) for g in patterns), *parts[0].shape[:2]))
    for g, part in zip(patterns, parts, strict=True):
        out[g.rows] = part.transpose(2, 0, 1)
    return out


def _gather_shared(patterns: list[_Pattern], parts: list[Floats]) -> Floats:
    """(T, n, n) for each pattern → (series, T, n, n); one pattern is not copied."""
    series = sum(len(g.rows) for g in patterns)
    if len(patterns) == 1:
        return np.broadcast_to(parts[0], (series, *parts[0].shape))
    out = np.empty((series, *parts[0].shape))
    for g, part in zip(patterns, parts, strict=True):
        out[g.rows] = part
    return out


# ----------------------------------------------------------------------------
# One step of expectation-maximisation for any subset of a state-space model's parameters (Shumway & Stoffer 1982).
#
# The expectations are the smoother's; the maximisation is least squares for [A B] and [C D] and the mean squared
# residual for Q and R. Outputs that are missing beside present ones are filled in by their distribution given those
# and the state, so the step is exact and never lowers the likelihood.


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
