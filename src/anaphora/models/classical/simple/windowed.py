"""One linear map from a window to the steps after it, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
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
