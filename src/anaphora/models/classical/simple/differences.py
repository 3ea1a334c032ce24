"""Autoregression of differences: from the step before, or from the last season."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
MOST = 13
"""Lags that are tried."""
ROWS = 8
"""Steps for each lag that is tried."""


@dataclass(frozen=True)
class Differences:
    """dₜ = yₜ − yₜ₋ₘ, m the ``period``, as a linear function of the few before it, by least squares:

        dₜ = c + a₁ dₜ₋₁ + … + a_p dₜ₋ₚ

    p and whether there is a c are those of the smallest criterion of Akaike, corrected for few steps. Several series have no c, since each
    would have its own. Missing values have been filled.

    >>> model = Differences.fit([np.array([0.0, 5, 1, 6, 2, 7, 3, 8, 4, 9, 5, 10])], period=2)
    >>> model.ahead(np.array([0.0, 5, 1, 6]), np.array([4]), 3).round(2).tolist()
    [[2.0, 7.0, 3.0]]
    """

    period: int
    constant: float
    weights: tuple[float, ...]

    @classmethod
    def fit(cls, series: Sequence[Floats], *, period: int) -> Differences:
        """To ``series`` (time,) each, every one measured by its own differences; those of at most ``period`` steps are left out."""
        changes = [y[period:] - y[:-period] for y in series if len(y) > period]
        changes = (
            [d / max(float(np.sqrt(np.mean(d**2))), 1e-12) for d in changes] if len(changes) > 1 else changes
        )
        longest = max((len(d) for d in changes), default=0)
        most = min(MOST, longest // ROWS)
        rows = [d[most - lag : len(d) - lag] for lag in range(most + 1) for d in changes if len(d) > most]
        if not rows:
            return cls(period, 0.0, ())
        per = len(rows) // (most + 1)
        table = np.stack(
            [np.concatenate(rows[lag * per : (lag + 1) * per]) for lag in range(most + 1)], axis=1
        )
        best: tuple[float, float, tuple[float, ...]] | None = None
        for own in (False, True) if len(series) == 1 else (False,):
            for order in range(most + 1):
                found = _least(table, order, own)
                if best is None or found[0] < best[0]:
                    best = found
        assert best is not None
        return cls(period, best[1], best[2])

    def ahead(self, y: Floats, ends: Places, horizon: int) -> Floats:
        """As that of `Smoothing`; NaN from where too few steps have been seen."""
        m, p = self.period, len(self.weights)
        found = np.full((len(ends), horizon), np.nan)
        late = np.flatnonzero(ends >= m + p)
        if not len(late):
            return found
        back = np.arange(-m - p, 0)
        path = y[ends[late][:, None] + back]  # (late, m + p)
        for _ in range(horizon):
            recent = path[:, -p:] - path[:, -p - m : -m] if p else path[:, :0]
            change = self.constant + recent[:, ::-1] @ np.array(self.weights)
            path = np.concatenate([path, (path[:, -m] + change)[:, None]], axis=1)
        found[late] = path[:, m + p :]
        return found

    def numbers(self) -> Floats:
        """All that was fitted; `of_numbers` takes it."""
        return np.array([self.period, self.constant, *self.weights], dtype=np.float64)

    @classmethod
    def of_numbers(cls, numbers: Floats) -> Differences:
        period, constant, *weights = numbers.tolist()
        if not 1 <= period <= 10_000:
            raise ValueError("differences: the period is out of its bounds")
        return cls(int(period), constant, tuple(weights))


def _least(table: Floats, order: int, own: bool) -> tuple[float, float, tuple[float, ...]]:
    """The criterion, c and the weights of ``order`` lags; ``table`` has a column per lag, the first without."""
    design = np.concatenate([table[:, 1 : order + 1], np.ones((len(table), int(own)))], axis=1)
    weights = np.linalg.lstsq(design, table[:, 0], rcond=None)[0] if design.shape[1] else np.zeros(0)
    rest = table[:, 0] - design @ weights
    rows, count = len(table), order + own + 1
    if rows <= count + 1:
        return math.inf, 0.0, ()
    penalty = 2 * count + 2 * count * (count + 1) / (rows - count - 1)
    # what is left by rounding is nothing: more lags would seem to fit better and better
    left = max(float(rest @ rest), 1e-20 * float(table[:, 0] @ table[:, 0]), 1e-300)
    return (
        rows * math.log(left / rows) + penalty,
        float(weights[-1]) if own else 0.0,
        tuple(weights[:order].tolist()),
    )
