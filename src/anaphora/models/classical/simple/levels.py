"""Autoregression of values around their mean, with those of the last season among its lags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anaphora.models.classical.simple.differences import MOST, ROWS

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Levels:
    """zₜ = yₜ − μ as a linear function of some steps before it, by least squares; μ is the mean of all that has been seen:

        zₜ = Σⱼ aⱼ zₜ₋ⱼ        j = 1 … p, and with a season of m steps also m and m + 1

    p is that of the smallest criterion of Akaike, corrected for few steps. Forecasts return to the mean, which those of `Differences` and of
    exponential smoothing do not. Missing values have been filled.

    >>> model = Levels.fit([np.array([1.0, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1])], period=1)
    >>> model.ahead(np.array([6.0, 4, 6, 4]), np.array([4]), 3).round(2).tolist()
    [[6.0, 4.0, 6.0]]
    """

    lags: tuple[int, ...]
    weights: tuple[float, ...]

    @classmethod
    def fit(cls, series: Sequence[Floats], *, period: int) -> Levels:
        """To ``series`` (time,) each, every one measured by its own deviation."""
        longest = max(len(y) for y in series)
        most = max(1, min(MOST, longest // ROWS))
        seasonal = (period, period + 1) if period > 1 and longest >= 3 * period + ROWS else ()
        lags = [*range(1, most + 1), *(lag for lag in seasonal if lag > most)]
        reach = max(lags)
        rows = []
        for y in series:
            if len(y) > reach:
                z = (y - y.mean()) / max(float(y.std()), 1e-12)
                rows.append(np.stack([z[reach - lag : len(z) - lag] for lag in (0, *lags)], axis=1))
        if not rows:
            return cls((), ())
        table = np.concatenate(rows)
        best: tuple[float, tuple[int, ...], Floats] = (math.inf, (), np.zeros(0))
        for order in range(1, most + 1):
            used = [lag for lag in lags if lag <= order or lag in seasonal]
            design = table[:, [1 + lags.index(lag) for lag in used]]
            weights = np.linalg.lstsq(design, table[:, 0], rcond=None)[0]
            rest = table[:, 0] - design @ weights
            count = len(used) + 1
            if len(table) <= count + 1:
                continue
            penalty = 2 * count + 2 * count * (count + 1) / (len(table) - count - 1)
            left = max(float(rest @ rest), 1e-20 * len(table))  # what is left by rounding is nothing
            criterion = len(table) * math.log(left / len(table)) + penalty
            if criterion < best[0]:
                best = criterion, tuple(used), weights
        return cls(best[1], tuple(best[2].tolist()))

    def ahead(self, y: Floats, ends: Places, horizon: int) -> Floats:
        """As that of `Smoothing`; NaN from where too few steps have been seen."""
        reach = max(self.lags, default=1)
        found = np.full((len(ends), horizon), np.nan)
        late = np.flatnonzero(ends >= reach)
        if not len(late):
            return found
        mean = (np.cumsum(y) / np.arange(1, len(y) + 1))[ends[late] - 1][:, None]
        path = y[ends[late][:, None] + np.arange(-reach, 0)] - mean
        for _ in range(horizon):
            value = path[:, [path.shape[1] - lag for lag in self.lags]] @ np.array(self.weights)
            path = np.concatenate([path, value[:, None]], axis=1)
        found[late] = path[:, reach:] + mean
        return found

    def numbers(self) -> Floats:
        """All that was fitted; `of_numbers` takes it."""
        return np.array([*self.lags, *self.weights], dtype=np.float64)

    @classmethod
    def of_numbers(cls, numbers: Floats) -> Levels:
        lags, weights = np.split(numbers, 2)
        if len(lags) and not (lags.min() >= 1 and lags.max() <= 10_000):
            raise ValueError("levels: a lag is out of its bounds")
        return cls(tuple(int(lag) for lag in lags), tuple(weights.tolist()))
