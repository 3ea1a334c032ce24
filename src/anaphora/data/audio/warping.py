"""The axis of frequencies of log energies, stretched and squeezed: as other speakers would have said it. Nothing here imports torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anaphora.errors import DataError

__all__ = ["bend", "warp"]

Array = np.ndarray[Any, np.dtype[np.float32]]
SHORTEST, LONGEST = 0.85, 1.15
"""Vocal tracts of `tracts`, in lengths of the speaker's own."""


def tracts(voices: int) -> list[float]:
    """The lengths of the vocal tracts of so many ``voices``, equally far from each other.

    >>> from anaphora.data.audio.warping import tracts
    >>> tracts(3)
    [0.85, 1.0, 1.15]
    """
    return [1.0] if voices == 1 else [float(x) for x in np.linspace(SHORTEST, LONGEST, voices).round(6)]


def warp(x: Array, factor: float, centres: Sequence[float]) -> Array:
    """Log-mel features ``x`` (T, F) as of another speaker, whose vocal tract is ``factor`` times as long: all resonances
    are divided by it, and neither pitch nor pace changes (Jaitly and Hinton 2013).

        x'(f) = x(g(f)),    g(f) = factor · f up to f₀ = 0.7 f_F min(1, 1/factor), then a straight line to g(f_F) = f_F

    ``centres`` are the frequencies f_1 … f_F of the filters (`LogMel.centres`), between which x is interpolated.

    >>> from anaphora.data.audio.warping import warp
    >>> warp(np.ones((5, 3), np.float32), 1.1, [100.0, 500.0, 1000.0]).shape
    (5, 3)
    """
    if not 0.5 <= factor <= 2:
        raise DataError(f"No vocal tract is {factor:g} times as long; stay between 0.5 and 2.")
    frequencies = np.asarray(centres)
    last = frequencies[-1]
    bend = 0.7 * last * min(1.0, 1 / factor)
    heard = np.interp(frequencies, [0.0, bend, last], [0.0, factor * bend, last])
    return _read_at(x, np.interp(heard, frequencies, np.arange(len(frequencies))))


def bend(x: Array, strength: float, random: np.random.RandomState) -> Array:
    """Log-mel features ``x`` (T, F) as of a speaker whose resonances lie otherwise, each in its own way: with u = m / (F − 1) the place of
    band m among all of them, from 0 to 1,

        x'(u) = x(u + e(u) Σ_{i=1,2} a_i sin(2π (k_i u + φ_i)) / (2π k_i)),    e(u) = min(1, 4u, 4 (1 − u))

    a_i ~ U(−strength, strength), k_i ~ U(½, 2½), φ_i ~ U(0, 1): each wave stretches the axis by up to a_i. The ends stay where they are.

    ``random`` draws the waves.

    >>> from anaphora.data.audio.warping import bend
    >>> bend(np.ones((5, 40), np.float32), 0.3, np.random.RandomState(1)).shape
    (5, 40)
    """
    last = x.shape[1] - 1
    u = np.linspace(0, 1, last + 1)
    moved = np.zeros(last + 1)
    for _ in range(2):
        waves, phase = random.uniform(0.5, 2.5), random.uniform(0, 1)
        height = random.uniform(-strength, strength) / (2 * math.pi * waves)
        moved += height * np.sin(2 * math.pi * (waves * u + phase))
    moved *= np.minimum(1, 4 * np.minimum(u, 1 - u))
    return _read_at(x, last * np.clip(u + moved, 0, 1))


def _read_at(x: Array, place: np.ndarray[Any, Any]) -> Array:
    """Frames (T, F) between whose features lies what is wanted, at the places (F,) from 0 to F − 1."""
    below = np.minimum(place.astype(np.int64), x.shape[1] - 2)
    share = (place - below).astype(np.float32)
    found: Array = (1 - share) * x[:, below] + share * x[:, below + 1]
    return found
