"""Exponential smoothing with a slope and a season, its parameters by least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anaphora.kernels.smoothing import smooth
from anaphora.models.classical.simple.search import minimised

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
Slope = Literal["none", "damped", "straight"]
SLOPES: tuple[Slope, ...] = ("none", "damped", "straight")
HEAD = 12
"""Steps, or four seasons, at the beginning of a series by which its first states are found."""
LEAST_DAMPED, MOST_DAMPED = 0.8, 0.98
_NOWHERE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Smoothing:
    """Level, slope and season that follow the errors of the forecasts one step ahead (Holt 1957, Winters 1960, Gardner & McKenzie 1985):

        ŷ = l + φ b + s        l ← l + φ b + α e        b ← φ b + α β e        s ← s + γ e        e = y − ŷ

    h steps ahead: l + (φ + φ² + … + φʰ) b + the s of that step. ``slope`` none: b = 0; straight: φ = 1; damped: φ is fitted, between 0.8 and 0.98.
    ``period`` 1: no season. A missing value (NaN) is forecast, and changes nothing.

    >>> model = Smoothing.fit([np.array([10.0, 12, 14, 16, 18, 20, 22, 24])], period=1, slope="straight")
    >>> model.ahead(np.array([10.0, 12, 14, 16, 18, 20, 22, 24]), np.array([8]), 2).round(2).tolist()
    [[26.0, 28.0]]
    """

    period: int
    slope: Slope
    gains: tuple[float, float, float, float]
    """α, β, φ, γ"""
    criterion: float = math.inf
    """Akaike's, corrected for few steps: smaller is better, among models of the same series."""

    @classmethod
    def fit(cls, series: Sequence[Floats], *, period: int, slope: Slope) -> Smoothing:
        """By the least sum of e² over ``series`` (time,) each, every series measured by its own changes from step to step."""
        begun = [first_states(y, period, slope) for y in series]
        weights = [1 / _spread(y) for y in series]

        def lost(x: Floats) -> float:
            gains = _gains(x, period, slope)
            return sum(
                weight * _run(y, gains, states, _NOWHERE)[0]
                for y, states, weight in zip(series, begun, weights, strict=True)
            )

        free = 1 + (slope != "none") + (slope == "damped") + (period > 1)
        start = np.array(
            [0.0, *([-2.0] * (slope != "none")), *([1.5] * (slope == "damped")), *([-2.0] * (period > 1))]
        )
        slow = np.array([-2.0, *start[1:]])
        x, least = min((minimised(lost, one) for one in (start, slow)), key=lambda found: found[1])
        steps = int(sum((~np.isnan(y)).sum() for y in series))
        count = free + 1 + len(series) * (period + (slope != "none"))
        criterion = math.inf
        if steps > count + 1:
            penalty = 2 * count + 2 * count * (count + 1) / (steps - count - 1)
            criterion = steps * math.log(max(least, 1e-300) / steps) + penalty
        return cls(period, slope, _gains(x, period, slope), criterion)

    @classmethod
    def chosen(cls, series: Sequence[Floats], *, period: int) -> Smoothing:
        """The model of smallest criterion, with a season and without, with each slope."""
        periods = sorted({1, period if seasons_fit(series, period) else 1})
        found = [cls.fit(series, period=one, slope=slope) for one in periods for slope in SLOPES]
        return min(found, key=lambda model: model.criterion)

    def ahead(self, y: Floats, ends: Places, horizon: int) -> Floats:
        """The ``horizon`` steps after the first t steps of ``y`` (time,) for each t of ``ends``: (ends, horizon). Later steps are not looked at."""
        reach = _head(self.period)
        found = np.empty((len(ends), horizon))
        order = np.argsort(ends, kind="stable")
        late = order[ends[order] >= reach]
        groups = [np.array([place]) for place in order[ends[order] < reach]] + ([late] if len(late) else [])
        alpha, beta, phi, gamma = self.gains
        steps = np.arange(1, horizon + 1)
        grown = np.cumsum(phi**steps)
        for places in groups:
            seen = y[: int(ends[places].max())]
            states = first_states(seen[:reach], self.period, self.slope)
            _, level, slope, season = _run(seen, (alpha, beta, phi, gamma), states, ends[places])
            turns = (ends[places][:, None] + steps - 1) % self.period
            found[places] = (
                level[:, None] + slope[:, None] * grown + np.take_along_axis(season, turns, axis=1)
            )
        return found

    def numbers(self) -> Floats:
        """All that was fitted; `of_numbers` takes it."""
        return np.array([self.period, SLOPES.index(self.slope), *self.gains], dtype=np.float64)

    @classmethod
    def of_numbers(cls, numbers: Floats) -> Smoothing:
        period, slope, alpha, beta, phi, gamma = numbers.tolist()
        if not (
            1 <= period <= 10_000
            and slope in (0, 1, 2)
            and all(0 <= g <= 1 for g in (alpha, beta, phi, gamma))
        ):
            raise ValueError("smoothing: numbers out of their bounds")
        return cls(int(period), SLOPES[int(slope)], (alpha, beta, phi, gamma))


def seasons_fit(series: Sequence[Floats], period: int) -> bool:
    """Whether the longest series is long enough to tell a season from chance: two of them and a few steps."""
    return period > 1 and max(len(y) for y in series) >= 2 * period + 5


def first_states(y: Floats, period: int, slope: Slope) -> tuple[float, float, Floats]:
    """Level and slope before the first step of ``y`` (time,) and the season of each turn (period,), from its first steps: a line, and the mean
    of what is left of each turn."""
    head = y[: _head(period)]
    steps = np.arange(len(head), dtype=np.float64)
    real = ~np.isnan(head)
    if not real.any():
        return 0.0, 0.0, np.zeros(period)
    rise = _rise(head, steps, real, period)
    rest = head - rise * steps
    level = float(np.mean(rest[real]))
    season = np.zeros(period)
    if period > 1:
        turns = np.arange(len(head)) % period
        counts = np.bincount(turns[real], minlength=period)
        sums = np.bincount(turns[real], weights=rest[real] - level, minlength=period)
        season = np.where(counts > 0, sums / np.maximum(counts, 1), 0.0)
        level += float(season.mean())
        season -= season.mean()
    return level - rise, rise if slope != "none" else 0.0, season


def _rise(head: Floats, steps: Floats, real: NDArray[np.bool_], period: int) -> float:
    """The slope of a line through the first steps; with a season, of the mean change from season to season."""
    if period > 1:
        change = head[period:] - head[:-period]
        known = change[~np.isnan(change)]
        return float(known.mean()) / period if len(known) else 0.0
    if real.sum() < 3:
        return 0.0
    away = steps[real] - steps[real].mean()
    return float(away @ head[real] / (away @ away))


def _spread(y: Floats) -> float:
    """The mean square of the changes from one value to the next."""
    changes = np.diff(y[~np.isnan(y)])
    return max(float(np.mean(changes**2)), 1e-12) if len(changes) else 1.0


def _head(period: int) -> int:
    return max(HEAD, 4 * period) if period > 1 else HEAD


def _gains(x: Floats, period: int, slope: Slope) -> tuple[float, float, float, float]:
    """α, β, φ and γ of unbounded numbers."""
    shares = (1 / (1 + np.exp(-np.clip(x, -30, 30)))).tolist()
    alpha = shares.pop(0)
    beta = shares.pop(0) if slope != "none" else 0.0
    phi = LEAST_DAMPED + (MOST_DAMPED - LEAST_DAMPED) * shares.pop(0) if slope == "damped" else 1.0
    gamma = (1 - alpha) * shares.pop(0) if period > 1 else 0.0
    return alpha, beta, phi, gamma


def _run(
    y: Floats, gains: tuple[float, float, float, float], states: tuple[float, float, Floats], ends: Places
) -> tuple[float, Floats, Floats, Floats]:
    """Σ e², and level (ends,), slope (ends,) and season (ends, period) after the first t steps for each t of ``ends``."""
    level, slope, season = states
    levels, slopes, seasons = np.empty(len(ends)), np.empty(len(ends)), np.empty((len(ends), len(season)))
    total = smooth(y, np.array(gains), level, slope, season.copy(), ends, levels, slopes, seasons)
    return total, levels, slopes, seasons
