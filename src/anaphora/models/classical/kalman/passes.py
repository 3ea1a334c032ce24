"""Filter and smoother over batches: the covariances once per pattern of missing entries, the means per series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import DataError
from anaphora.kernels import kalman as kernel
from anaphora.models.classical.kalman.results import Filtered, Smoothed

Floats = NDArray[np.float64]


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
