"""Recordings that are short, or not over yet, normalised with what is usual in the training set. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]
LOUD = 4.6
"""Nats (20 dB) below the loudest frame from which a frame counts as speech."""
LEAST = 1e-3
"""Least standard deviation that is divided by: a feature that never changes stays zero."""
WEIGHT, WHOLE = 100.0, 30.0
"""Frames that the training set's mean and variance count for beside those of a recording: a second while it arrives, less where all of
it is there."""


@dataclass(frozen=True)
class Usual:
    """What features are like in the training set: mean and deviation of each, ``(F,)``.

    From it recordings are normalised that are short, or not over yet. With n frames of a recording, their mean μ_n and variance σ²_n,
    and the usual μ_0 and σ²_0 as if they had been seen in w frames,

        μ = (w μ_0 + n μ_n) / (w + n),    σ² = (w (σ²_0 + (μ_0 − μ)²) + n (σ²_n + (μ_n − μ)²)) / (w + n),    (x − μ) / σ

    "adapted" takes all frames of a recording, after the mean of its loud frames is taken away as in "speech", and w = 30; "running" takes
    for each frame those up to it, so that nothing that comes later is needed, and w = 100.
    """

    mean: Array
    deviation: Array
    bands: int = 0
    """Of mfcc, of how many bands they were made; 0: features are log energies themselves."""

    @classmethod
    def of(cls, recordings: Iterable[Array], how: str, bands: int = 0) -> Usual:
        """Over the frames of some recordings ``(T, F)``."""
        parts = [levelled(one, bands) if how == "adapted" else one for one in recordings]
        x = np.concatenate(parts).astype(np.float64)
        return cls(x.mean(0).astype(np.float32), np.maximum(x.std(0), LEAST).astype(np.float32), bands)

    def adapted(self, x: Array) -> Array:
        """The frames ``(T, F)`` of a recording, normalised as a whole."""
        apart = levelled(x, self.bands) - self.mean.astype(np.float64)
        return self._scaled(apart, len(x), apart.sum(0), np.square(apart).sum(0), WHOLE)

    def running(self) -> Running:
        """Normalises the frames of one recording as they arrive."""
        return Running(self)

    def _scaled(self, apart: Any, count: Any, first: Any, second: Any, weight: float) -> Array:
        """Of frames less the usual mean, of which ``count`` have the sums ``first`` and, of squares, ``second``."""
        mean = first / (weight + count)
        square = weight * np.square(self.deviation, dtype=np.float64) + second
        variance = square / (weight + count) - np.square(mean)
        found: Array = ((apart - mean) / np.sqrt(np.maximum(variance, LEAST**2))).astype(np.float32)
        return found


class Running:
    """See `Usual`; put together, what it gives of the pieces of a recording is what it gives of the whole."""

    def __init__(self, usual: Usual):
        self._usual, self._count = usual, 0
        self._first, self._second = np.zeros((2, len(usual.mean)))

    def __call__(self, x: Array) -> Array:
        """The next frames ``(n, F)``."""
        if not len(x):
            return x
        apart = x.astype(np.float64) - self._usual.mean
        first, second = self._first + apart.cumsum(0), self._second + np.square(apart).cumsum(0)
        count = self._count + np.arange(1, len(x) + 1)[:, None]
        self._count, self._first, self._second = self._count + len(x), first[-1], second[-1]
        return self._usual._scaled(apart, count, first, second, WEIGHT)


def levelled(x: Array, bands: int = 0) -> Any:
    """Frames ``(T, F)`` less the mean over the frames at most 20 dB quieter than the loudest.

    Of mfcc of so many ``bands`` the first coefficient is √bands times the mean log energy, and what is added to all log energies changes
    nothing but it.
    """
    if not len(x):
        return x
    if bands:
        loudness = x[:, 0].astype(np.float64) / np.sqrt(bands)
        mean = x[loudness >= loudness.max() - LOUD, 0].mean(dtype=np.float64)
        return np.concatenate((x[:, :1] - mean, x[:, 1:]), axis=1)
    loudness = np.logaddexp.reduce(x.astype(np.float64), axis=1)
    return x - x[loudness >= loudness.max() - LOUD].mean(dtype=np.float64)
