"""How far off forecasts are: the quantiles of |error| that every forecaster makes its intervals of.

Dev data of short series hold few windows, often one, and windows that overlap err alike. From `ENOUGH` dev windows that do not overlap, the
errors of each step ahead speak for themselves (split conformal prediction). Of fewer, steps and places are taken together:

1. Forecasts from places in the second half of the training series count as well. A model knows these steps: where its errors on the dev data
   are larger, all of theirs are made so much larger.
2. Each step h has a scale s_h, the root of the mean squared error, which never falls from one step to the next.
3. The quantiles of |error| / s_h over all steps and places are widened by Student's distribution with two degrees of freedom for each
   window that overlaps no other: few errors say little about the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from anaphora.data.series_ahead import point
from anaphora.data.series_windows import Windows
from anaphora.models.forecaster import LEVELS
from anaphora.tasks.forecast.inference.running import Found

Floats = NDArray[np.float64]
ENOUGH = 30
"""Dev windows that do not overlap from which on nothing else is looked at."""
PLACES = 120
"""Places of the training series that are forecast from, where dev windows are few."""
_HALVINGS = 60


@dataclass(frozen=True)
class Errors:
    """``sizes`` (n, H, targets): |error| of n forecasts, NaN where a value is missing; ``apart``: how many of their windows do not overlap."""

    sizes: Floats
    apart: int

    @property
    def enough(self) -> bool:
        return self.apart >= ENOUGH


def errors_of(found: Sequence[Found], windows: Windows) -> Errors:
    """Those of the outputs ``found`` for examples of ``windows``, in the units of the outputs."""
    away = [np.abs(point(out, windows.columns.output) - batch.y) for out, batch in found]
    steps, targets = windows.ahead, len(windows.columns.targets)
    flat = [one.reshape(-1, steps, targets).astype(np.float64) for one in away]
    sizes = np.concatenate([*flat, np.zeros((0, steps, targets))])
    if windows.dense:  # outputs after every step of stretches that share no target
        return Errors(sizes, int((~np.isnan(sizes[:, 0])).any(axis=-1).sum()) // steps)
    indices = [index for _, batch in found for index in batch.indices]
    return Errors(sizes, apart(windows.places[indices], windows.horizon))


def apart(places: NDArray[np.int64], horizon: int) -> int:
    """How many of ``places`` (n, 2), series and step, can be taken so that those of a series are ``horizon`` steps apart."""
    count, series, free = 0, -1, 0
    for number, step in sorted(places.tolist()):
        if number != series or step >= free:
            count, series, free = count + 1, number, step + horizon
    return count


def late(windows: Windows) -> list[int]:
    """Examples in the second half of each training series, at most `PLACES`, evenly spread; none where outputs come after every step."""
    if windows.dense:
        return []
    halves = np.array([len(one.inputs) // 2 for one in windows.prepared])
    found = np.flatnonzero(windows.places[:, 1] >= halves[windows.places[:, 0]])
    if len(found) > PLACES:
        found = found[np.linspace(0, len(found) - 1, PLACES).astype(np.int64)]
    return [int(index) for index in found]


def error_quantiles(dev: Errors, before: Errors | None = None) -> Floats:
    """The quantiles 0, 0.01 … 1 of |error| for each step ahead and target, (101, H, targets); 0 where there is no error at all.

    ``before`` are errors in the training series, which are looked at where those of ``dev`` are not `enough`.
    """
    if dev.enough:
        return conformal(dev.sizes)
    sizes, windows = dev.sizes, dev.apart
    if before is not None and len(before.sizes):
        sizes = np.concatenate([_raised(before.sizes, dev.sizes), sizes])
        windows += before.apart
    count, steps, targets = sizes.shape
    scale = np.sqrt(rising(_mean(sizes**2, 0), (~np.isnan(sizes)).sum(axis=0)))  # (H, targets)
    shares = np.divide(sizes, scale, out=np.where(np.isnan(sizes), np.nan, 0.0), where=scale > 0)
    pooled = conformal(shares.reshape(count * steps, targets))
    return np.asarray((pooled * widening(max(1, windows))[:, None])[:, None] * scale)


def conformal(sizes: Floats) -> Floats:
    """The quantiles 0, 0.01 … 1 of ``sizes`` (n, …) along their first axis, (101, …): of n numbers the ⌈(n + 1) q⌉th smallest, at
    most the largest, so that the next one lies below it with probability q (split conformal prediction). NaN is left out."""
    ordered = np.sort(sizes, axis=0)  # NaN last
    count = (~np.isnan(sizes)).sum(axis=0)
    levels = np.linspace(0.0, 1.0, LEVELS).reshape(-1, *(1,) * (sizes.ndim - 1))
    # 0.07 · 100 is above 7 in floating point
    ranks = np.clip(np.ceil(np.round((count + 1) * levels, 9)).astype(np.int64), 1, np.maximum(count, 1)) - 1
    if not len(ordered):
        return np.zeros((LEVELS, *sizes.shape[1:]))
    return np.asarray(np.nan_to_num(np.take_along_axis(ordered, ranks, axis=0)), dtype=np.float64)


def rising(values: Floats, weights: NDArray[np.int64]) -> Floats:
    """The ``values`` (H, targets) nearest by weighted squares that never fall with H: neighbours that do become their mean."""
    found = np.zeros_like(values)
    for target in range(values.shape[1]):
        blocks: list[tuple[float, int, int]] = []  # mean, weight, steps
        for mean, weight in zip(values[:, target].tolist(), weights[:, target].tolist(), strict=True):
            steps = 1
            # a step without a value is as the one before
            while blocks and (not weight or blocks[-1][0] > mean or not blocks[-1][1]):
                first, heavy, long = blocks.pop()
                mean = (first * heavy + mean * weight) / max(1, heavy + weight)
                weight, steps = heavy + weight, long + steps
            blocks.append((mean, weight, steps))
        found[:, target] = np.repeat([mean for mean, _, _ in blocks], [steps for _, _, steps in blocks])
    return found


def widening(windows: int) -> Floats:
    """How much wider an interval of each level 0, 0.01 … 1 is in Student's distribution with 2 · ``windows`` degrees of freedom than in the
    normal one, (101,); that of 1, which would be infinite, is that of 0.99."""
    levels = np.clip(np.linspace(0.0, 1.0, LEVELS), 0.01, 0.99)
    usual = np.array([NormalDist().inv_cdf((1 + level) / 2) for level in levels])
    return np.asarray(student(levels, 2 * windows) / usual)


def student(levels: Floats, degrees: int) -> Floats:
    """The t with P(|T| ≤ t) = level, for each of ``levels`` below 1 and an even number of ``degrees`` of freedom ν:

    P(|T| ≤ t) = sin θ (1 + ½ cos² θ + (1·3)/(2·4) cos⁴ θ + … up to cos^(ν−2) θ),   θ = arctan(t/√ν)
    """
    low, high = np.zeros_like(levels), np.full_like(levels, np.pi / 2)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        square, term, total = np.cos(middle) ** 2, np.ones_like(levels), np.ones_like(levels)
        for k in range(2, degrees, 2):
            term = term * square * (k - 1) / k
            total = total + term
        below = np.sin(middle) * total < levels
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(np.sqrt(degrees) * np.tan(high))


def _raised(before: Floats, dev: Floats) -> Floats:
    """``before`` (n, H, targets) as large as ``dev`` by their mean squares over all steps, where that is more; left out where they are all 0."""
    own, others = _mean(before**2, (0, 1)), _mean(dev**2, (0, 1))
    factor = np.sqrt(np.divide(others, own, out=np.full_like(own, np.nan), where=own > 0))
    return np.asarray(before * np.where(own > 0, np.maximum(factor, 1.0), np.where(others > 0, np.nan, 1.0)))


def _mean(values: Floats, axes: int | tuple[int, ...]) -> Floats:
    """The mean without NaN, 0 of nothing."""
    real = ~np.isnan(values)
    return np.asarray(np.where(real, values, 0.0).sum(axis=axes) / np.maximum(1, real.sum(axis=axes)))
