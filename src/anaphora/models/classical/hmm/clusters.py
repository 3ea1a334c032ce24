"""First groups for the states of a model of vectors: k-means on some of the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROWS = 10_000  # enough of them to find the first means


def clusters(x: Floats, K: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """k-means with spread-out seeds; missing entries stand at their feature's mean."""
    mean, spread = _mean_and_spread(x)
    z = np.nan_to_num((x - mean) / np.where(spread > 0, spread, 1.0))
    some = z if len(z) <= ROWS else z[rng.choice(len(z), ROWS, replace=False)]
    centres = some[rng.integers(len(some))][None]
    for _ in range(K - 1):
        far = _squares(some, centres).min(1)
        chances = far / far.sum() if far.sum() > 0 else None
        centres = np.vstack([centres, some[rng.choice(len(some), p=chances)]])
    for _ in range(10):
        nearest = _squares(some, centres).argmin(1)
        for k in np.unique(nearest):
            centres[k] = some[nearest == k].mean(0)
    return np.asarray(_squares(z, centres).argmin(1))


def _squares(x: Floats, centres: Floats) -> Floats:
    return np.asarray(np.maximum((x**2).sum(1)[:, None] - 2 * x @ centres.T + (centres**2).sum(1), 0.0))


def _mean_and_spread(x: Floats) -> tuple[Floats, Floats]:
    """Of each feature over the rows that have it; 0 for a feature that none has."""
    there = ~np.isnan(x)
    count = np.maximum(there.sum(0), 1)
    mean = np.where(there, x, 0.0).sum(0) / count
    return mean, np.sqrt((np.where(there, x - mean, 0.0) ** 2).sum(0) / count)
