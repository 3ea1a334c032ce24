"""Sound as other rooms, microphones and speakers would give it: echoes, colour, loudness, pitch, and pauses around it.

Like the functions of `anaphora.data.audio.augment` they take the generator of their random choices, or a factor drawn from it.
"""

from __future__ import annotations

import math

import numpy as np

from anaphora.data.audio.augment import filtered, speed
from anaphora.data.audio.files import Wave
from anaphora.errors import DataError

__all__ = ["colour", "pitch", "reverberate", "stretch"]

_WINDOW = 0.03  # seconds that `stretch` moves as one: about three periods of a low voice
_SEARCH = 0.008  # seconds that it looks to either side for the place that continues best
_CURVE = 7  # points of the random curve of `colour`


def stretch(wave: Wave, factor: float, rate: int) -> Wave:
    """The sound (n,) ``factor`` times as fast at the same pitch: (round(n / factor),).

    Waveform similarity overlap-add (Verhelst and Roelands 1993): windows of 30 ms are taken about every ``factor`` · 15 ms and
    laid down every 15 ms with Hann's weights, which sum to one. Each is taken within 8 ms of its place where it correlates most
    with what would follow the window before it.

    ``wave``: the samples, float32, ``rate`` of them a second. Raises a `DataError` for a ``factor`` outside of 0.5 … 2.

    >>> from anaphora.data.audio.rooms import stretch
    >>> stretch(np.ones(4000, np.float32), 2.0, 8000).shape
    (2000,)
    """
    if not 0.5 <= factor <= 2:
        raise DataError(f"A pace of {factor:g} is no speech any more; stay between 0.5 and 2.")
    half = max(1, round(_WINDOW * rate / 2))
    reach, wanted = max(1, round(_SEARCH * rate)), round(len(wave) / factor)
    if factor == 1 or len(wave) < 2 * half:
        return wave if factor == 1 else wave[:wanted].copy()
    padded = np.pad(wave, (half + reach, 4 * half + 2 * reach))
    weights = (0.5 - 0.5 * np.cos(np.pi * np.arange(2 * half) / half)).astype(np.float32)
    steps = wanted // half + 2
    made = np.zeros((steps + 1) * half, np.float32)
    taken = (
        reach  # where in `padded` the last window was taken; the first begins half a window before the sound
    )
    for step in range(steps):
        if step:
            nominal = min(reach + round(step * half * factor), len(padded) - 2 * half - reach)
            follows = padded[taken + half : taken + 3 * half]
            around = padded[nominal - reach : nominal + reach + len(follows)]
            taken = nominal - reach + int(np.correlate(around, follows, "valid").argmax())
            taken = min(taken, len(padded) - 3 * half)
        made[step * half : (step + 2) * half] += weights * padded[taken : taken + 2 * half]
    return made[half : half + wanted]


def pitch(wave: Wave, factor: float, rate: int) -> Wave:
    """The sound (n,) with all frequencies times ``factor`` at the same pace: `speed`, then `stretch` back; about n samples.

    ``wave``: the samples, ``rate`` of them a second.

    >>> from anaphora.data.audio.rooms import pitch
    >>> 3900 < len(pitch(np.ones(4000, np.float32), 1.1, 8000)) < 4100
    True
    """
    return stretch(speed(wave, factor), 1 / factor, rate)


def reverberate(wave: Wave, seconds: float, share: float, rate: int, random: np.random.RandomState) -> Wave:
    """The sound (n,) with the echoes of a room in which it fades by 60 dB in ``seconds``; as long as before.

        x' = x ∗ h,    h_0 = 1,    h_n = c ε_n 10^{−3 n / (seconds · rate)},    ε_n ~ N(0, 1)

    ∗ is the convolution over time, and c is such that the echoes have the energy Σ_{n>0} h_n² = share. ``wave``: the samples x, float32,
    ``rate`` of them a second; ``random`` draws ε. Without echoes (fewer than two samples of them, or ``share`` ≤ 0) the sound itself
    comes back.

    >>> from anaphora.data.audio.rooms import reverberate
    >>> reverberate(np.ones(1000, np.float32), 0.3, 0.5, 8000, np.random.RandomState(1)).shape
    (1000,)
    """
    length = min(round(seconds * rate), len(wave))
    if length < 2 or share <= 0:
        return wave
    echoes = random.standard_normal(length) * 10 ** (-3 * np.arange(length) / (seconds * rate))
    echoes[0] = 0
    echoes *= math.sqrt(share / float(np.sum(echoes**2)))
    echoes[0] = 1
    points = 1 << (len(wave) + length - 1).bit_length()
    response = np.fft.rfft(echoes.astype(np.float32), points).astype(np.complex64)
    return filtered(wave, response, points)


def colour(wave: Wave, decibels: float, random: np.random.RandomState) -> Wave:
    """The sound (n,) through a microphone that makes frequencies louder or quieter by up to ``decibels``: along a curve through
    seven random points, which lie closer together at low frequencies, without a change of phase.

    ``wave``: the samples; ``random`` draws the points.

    >>> from anaphora.data.audio.rooms import colour
    >>> colour(np.ones(1000, np.float32), 6.0, np.random.RandomState(1)).shape
    (1000,)
    """
    if not len(wave):
        return wave
    points = 1 << (len(wave) + 255).bit_length()  # room for what a smooth curve rings
    gains = random.uniform(-decibels, decibels, size=_CURVE)
    places = np.concatenate(([0.0], 0.5 ** np.arange(_CURVE - 2, -1, -1.0)))
    curve = np.interp(np.linspace(0, 1, points // 2 + 1), places, gains)
    return filtered(wave, (10 ** (curve / 20)).astype(np.float32), points)


def pause(level: float, seconds: float, rate: int, random: np.random.RandomState) -> Wave:
    """``seconds`` of white noise of loudness ``level``."""
    return (level * random.standard_normal(round(seconds * rate))).astype(np.float32)
