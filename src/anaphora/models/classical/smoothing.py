"""The recursion of exponential smoothing, in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anaphora.native.jit import njit

Floats = NDArray[np.float64]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def smooth(
    y: Floats,
    gains: Floats,
    level: float,
    slope: float,
    season: Floats,
    ends: NDArray[np.int64],
    levels: Floats,
    slopes: Floats,
    seasons: Floats,
) -> float:
    """Σ e² over a series ``y`` (time,), NaN where missing.

        e = y − (l + φ b + s)        l ← l + φ b + α e        b ← φ b + α β e        s ← s + γ e

    ``gains`` are α, β, φ and γ; s is the entry of ``season`` (period,) whose turn it is. A missing value has e = 0. The states before step t
    are written to ``levels`` and ``slopes`` (ends,) and ``seasons`` (ends, period) for each t of ``ends``, which rise. ``season`` is changed.
    """
    alpha, beta, phi, gamma = gains
    period, total, place = len(season), 0.0, 0
    for t in range(len(y) + 1):
        while place < len(ends) and ends[place] == t:
            levels[place], slopes[place] = level, slope
            for turn in range(period):
                seasons[place, turn] = season[turn]
            place += 1
        if t == len(y):
            break
        turn = t % period
        base = level + phi * slope
        error = y[t] - base - season[turn]
        if np.isnan(error):
            error = 0.0
        total += error * error
        level = base + alpha * error
        slope = phi * slope + alpha * beta * error
        season[turn] += gamma * error
    return total
