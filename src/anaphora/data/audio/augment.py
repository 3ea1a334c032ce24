"""Sound that is never heard twice the same: hidden stretches of features, other speeds, other speakers, added noise.

Every function takes the generator of its random choices, made by `anaphora.data.batches.pooled.random_of` from (seed, step,
index), so that a run that is resumed varies its recordings as if it had never stopped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from anaphora.data.audio.files import Wave
from anaphora.data.audio.resample import resample
from anaphora.data.sources.arrays import Array
from anaphora.errors import DataError

__all__ = ["SpecAugment", "noise", "speed"]

FINEST = 100
"""Speeds are multiples of 1/100, so that resampling needs few filters."""
MOST_HIDDEN = 0.3
"""Largest share of the frames of an utterance that one stretch of time may hide."""


@dataclass(frozen=True)
class SpecAugment:
    """Hide stretches of time and bands of features (Park and others 2019, without the warping of time).

    ``time_masks`` times a width u ~ U{0 … min(time_width, 0.3 T)} and a first frame t ~ U{0 … T − u} are drawn and the
    frames t … t + u − 1 replaced by ``fill``; likewise for ``frequency_masks`` bands of up to ``frequency_width``
    features. Zero is the mean of normalised features.

    >>> from anaphora.data.audio.augment import SpecAugment
    >>> hide = SpecAugment(time_masks=1, time_width=5, frequency_masks=0)
    >>> x = hide(np.ones((50, 8), np.float32), np.random.RandomState(1))
    >>> x.shape, bool((x == 0).any())
    ((50, 8), True)
    """

    time_masks: int = 2
    time_width: int = 20
    frequency_masks: int = 2
    frequency_width: int = 8
    fill: float = 0.0

    def __call__(self, x: Array, random: np.random.RandomState) -> Array:
        """A copy of ``x`` (T, F) with holes."""
        x = x.copy()
        frames, features = x.shape
        widest = min(self.time_width, int(MOST_HIDDEN * frames))
        for _ in range(self.time_masks):
            begin, end = _stretch(frames, widest, random)
            x[begin:end] = self.fill
        for _ in range(self.frequency_masks):
            begin, end = _stretch(features, min(self.frequency_width, features - 1), random)
            x[:, begin:end] = self.fill
        return x


def speed(wave: Wave, factor: float) -> Wave:
    """The sound (n,) played ``factor`` times as fast, which raises its pitch and formants too: (⌈n/factor⌉,).

    x'(t) = x(factor · t), by `resample`; the factor is rounded to hundredths.

    ``wave``: the samples.

    >>> from anaphora.data.audio.augment import speed
    >>> speed(np.ones(1000, np.float32), 1.25).shape
    (800,)
    """
    ratio = Fraction(round(factor * FINEST), FINEST)
    if not 0.5 <= ratio <= 2:
        raise DataError(f"A speed of {factor:g} is no speech any more; stay between 0.5 and 2.")
    return resample(torch.from_numpy(wave), ratio.numerator, ratio.denominator).numpy()


def noise(wave: Wave, level: float, random: np.random.RandomState, slope: float = 0.0) -> Wave:
    """Noise added, ``level`` times as strong as the sound itself:

        x'_n = x_n + level · √(mean(x²)) · ε_n        (signal to noise: −20 log₁₀ level dB)

    ε has variance 1 and the power spectrum f^{−slope}: 0 is white, 1 pink, 2 brown. White ε_n are drawn from N(0, 1).

    ``wave`` ``(n,)`` and the result are float32; ``random`` draws ε.

    >>> from anaphora.data.audio.augment import noise
    >>> noise(np.ones(100, np.float32), 0.1, np.random.RandomState(1)).shape
    (100,)
    """
    if not len(wave):
        return wave
    added = random.standard_normal(len(wave)).astype(np.float32)
    if slope:
        points = 1 << (len(wave) - 1).bit_length()  # other lengths take a multiple of the time
        shape = np.arange(points // 2 + 1, dtype=np.float32)
        shape[1:] **= -slope / 2
        added = filtered(added, shape, points)
        added /= np.float32(max(float(np.sqrt(np.mean(np.square(added)))), 1e-12))
    strength = level * math.sqrt(float(np.mean(np.square(wave, dtype=np.float64))))
    return wave + (strength * added).astype(np.float32)


def filtered(wave: Wave, response: np.ndarray[Any, Any], points: int) -> Wave:
    """The sound (n,) whose spectrum over ``points`` ≥ n samples is multiplied by ``response`` (points/2 + 1,), real or complex."""
    spectrum = torch.fft.rfft(torch.from_numpy(wave), points) * torch.from_numpy(response)
    found: Wave = torch.fft.irfft(spectrum, points)[: len(wave)].numpy()
    return found


def _stretch(length: int, widest: int, random: np.random.RandomState) -> tuple[int, int]:
    width = int(random.randint(0, max(widest, 0) + 1))
    begin = int(random.randint(0, length - width + 1))
    return begin, begin + width
