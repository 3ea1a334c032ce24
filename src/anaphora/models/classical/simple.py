"""Forecasts of one series from its own past that take a second to fit: exponential smoothing, autoregression of values and of differences from
the last season, and one linear map of a window. Alone each is sometimes far off; their median seldom is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anaphora.models.classical.smoothing import smooth

# ----------------------------------------------------------------------------
# The minimum of a function of a few numbers, without its gradient.

Floats = NDArray[np.float64]


def minimised(
    of: Callable[[Floats], float],
    begin: Floats,
    *,
    step: float = 1.0,
    most: int = 200,
    tolerance: float = 1e-7,
) -> tuple[Floats, float]:
    """Where ``of`` is smallest near ``begin`` (n,), and its value there, by the simplex of Nelder & Mead (1965).

    The worst corner is reflected at the middle of the others, and the simplex grows, shrinks or moves by what is found there, ``most`` times or
    until its corners differ by less than ``tolerance`` of the best. A value that is not finite counts as larger than all others.

    >>> place, value = minimised(lambda x: float((x[0] - 3) ** 2 + abs(x[1])), np.zeros(2))
    >>> [round(float(one), 2) + 0.0 for one in place]
    [3.0, 0.0]
    """

    def value(x: Floats) -> float:
        found = of(x)
        return found if np.isfinite(found) else np.inf

    corners = [begin, *(begin + step * row for row in np.eye(len(begin)))]
    values = [value(corner) for corner in corners]
    for _ in range(most):
        order = np.argsort(values, kind="stable")
        corners, values = [corners[i] for i in order], [values[i] for i in order]
        if values[-1] - values[0] <= tolerance * abs(values[0]):
            break
        middle = np.mean(corners[:-1], axis=0)
        reflected = 2 * middle - corners[-1]
        there = value(reflected)
        if there < values[0]:
            further = 3 * middle - 2 * corners[-1]
            beyond = value(further)
            corners[-1], values[-1] = (further, beyond) if beyond < there else (reflected, there)
        elif there < values[-2]:
            corners[-1], values[-1] = reflected, there
        else:
            nearer = (middle + (corners[-1] if there >= values[-1] else reflected)) / 2
            inside = value(nearer)
            if inside < min(there, values[-1]):
                corners[-1], values[-1] = nearer, inside
            else:
                corners = [corners[0], *((corners[0] + corner) / 2 for corner in corners[1:])]
                values = [values[0], *(value(corner) for corner in corners[1:])]
    best = int(np.argmin(values))
    return corners[best], values[best]


# ----------------------------------------------------------------------------
# Exponential smoothing with a slope and a season, its parameters by least squares.

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


# ----------------------------------------------------------------------------
# Autoregression of differences: from the step before, or from the last season.

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


# ----------------------------------------------------------------------------
# Autoregression of values around their mean, with those of the last season among its lags.


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


# ----------------------------------------------------------------------------
# One linear map from a window to the steps after it, in closed form.

SHORTEST = 12
FEWEST = 10
"""Windows of which a map can be learned."""
PENALTIES = np.geomspace(1e-4, 1e2, 13)


@dataclass(frozen=True)
class Windowed:
    """The differences of the next H steps from the last value are a linear map of those of the w steps before it:

        yₜ₊ₕ − yₜ = cₕ + Σⱼ Mⱼₕ (yₜ₋ⱼ − yₜ)        j = 1 … w − 1

    by ridge regression, its penalty by generalised cross-validation (Golub, Heath & Wahba 1979). Several series have no c. Missing values have
    been filled.
    """

    table: Floats
    """(w, H): M with the step furthest back first, then c"""

    @classmethod
    def fit(cls, series: Sequence[Floats], *, period: int, horizon: int) -> Windowed | None:
        """To ``series`` (time,) each, from windows of two seasons, or of a third of what there is; None where there are too few of them."""
        longest = max(len(y) for y in series)
        window = min(max(2 * period, SHORTEST), max(4, (longest - horizon) // 3))
        read, wanted = [], []
        for y in series:
            count = len(y) - window - horizon + 1
            if count < 1:
                continue
            rows = np.lib.stride_tricks.sliding_window_view(y, window + horizon)
            rows = rows - rows[:, window - 1 : window]
            if len(series) > 1:
                rows = rows / max(float(np.sqrt(np.mean(np.diff(y) ** 2))), 1e-12)
            read.append(rows[:, : window - 1])
            wanted.append(rows[:, window:])
        if sum(map(len, read)) < FEWEST:
            return None
        X, Y = np.concatenate(read), np.concatenate(wanted)
        X = np.concatenate([X, np.full((len(X), 1), float(len(series) == 1))], axis=1)
        return cls(_ridge(X, Y))

    def ahead(self, y: Floats, ends: Places, horizon: int) -> Floats:
        """As that of `Smoothing`; NaN from where too few steps have been seen. Beyond H steps it goes on from its own forecasts."""
        window = len(self.table)
        found = np.full((len(ends), horizon), np.nan)
        late = np.flatnonzero(ends >= window)
        if not len(late):
            return found
        path = y[ends[late][:, None] + np.arange(-window, 0)]
        while path.shape[1] < window + horizon:
            last = path[:, -1:]
            read = np.concatenate([path[:, -window:-1] - last, np.ones((len(late), 1))], axis=1)
            path = np.concatenate([path, last + read @ self.table], axis=1)
        found[late] = path[:, window : window + horizon]
        return found


def _ridge(X: Floats, Y: Floats) -> Floats:
    """Weights (inputs, outputs) that minimise |Y − X W|² + λ |W|²."""
    left, values, right = np.linalg.svd(X, full_matrices=False)
    turned, size = left.T @ Y, float((Y**2).sum())
    best: tuple[float, Floats] | None = None
    for penalty in PENALTIES * max(float(values[0]) ** 2 / len(values), 1e-300):
        kept = values**2 / (values**2 + penalty)
        rest = size - float(((2 * kept - kept**2)[:, None] * turned**2).sum())
        error = max(rest, 0.0) / max(1 - kept.sum() / len(X), 1e-6) ** 2
        if best is None or error < best[0]:
            best = error, right.T @ ((values / (values**2 + penalty))[:, None] * turned)
    assert best is not None
    return best[1]
