"""Quiet before and after a recording that begins and ends with a word. Nothing here imports torch."""

from __future__ import annotations

from typing import Any

import numpy as np

Wave = np.ndarray[Any, np.dtype[np.float32]]
PIECE = 0.01
"""Seconds over which loudness is measured."""
QUIETEST = 0.1
"""Share of a recording that is quieter than what counts as quiet."""


def quiet(wave: Wave, rate: int) -> float:
    """How loud (root of the mean square) a sound is where it is quiet: the tenth part of its pieces of 10 ms are quieter."""
    length = max(1, round(PIECE * rate))
    pieces = wave[: len(wave) // length * length].reshape(-1, length)
    if not len(pieces):
        return 0.0
    return float(np.quantile(np.sqrt(np.mean(np.square(pieces, dtype=np.float64), axis=1)), QUIETEST))


def edged(wave: Wave, samples: int, rate: int) -> Wave:
    """The sound ``(n,)`` with so many ``samples`` of white noise before and after it, as loud as it is where it is quiet; always the same
    noise, so that a recording is always heard the same.

    >>> from anaphora.data.audio.edges import edged
    >>> edged(np.ones(1000, np.float32), 200, 8000).shape
    (1400,)
    """
    if not samples or not len(wave):
        return wave
    noise = np.random.RandomState(samples).standard_normal((2, samples)) * quiet(wave, rate)
    before, after = noise.astype(np.float32)
    return np.concatenate((before, wave, after))


def margin_of(settings: Any) -> int:
    """Frames that ``edges`` of the settings are, on either side: a multiple of ``subsample``, so that whole places can be cut off."""
    factor = int(getattr(settings, "subsample", 1))
    return factor * round(float(settings.edges) / float(settings.hop) / factor)
