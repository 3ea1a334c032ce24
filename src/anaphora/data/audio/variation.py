"""The chain by which training varies a sound: what `SoundSettings` ask for, in the order in which it happens to real speech.

A speaker (speed, pitch) says something, pauses around it, in a room (reverberation) with noise, into a microphone (channel, volume).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anaphora.data.audio.augment import noise, speed
from anaphora.data.audio.files import Wave
from anaphora.data.audio.preprocessing import quiet
from anaphora.data.audio.rooms import colour, pause, pitch, reverberate
from anaphora.settings.sound import SoundSettings

_DULLEST = 2.0  # the steepest slope of the spectrum of added noise, `augment.noise`
_OF_SOUND = ("speed", "pitch", "noise", "reverberation", "channel", "volume", "pauses")


def varies_sound(s: SoundSettings) -> bool:
    """Whether the samples themselves are varied, so that features must be computed again each time."""
    return s.joined > 1 or any(getattr(s, name) for name in _OF_SOUND)


def varied(
    waves: Sequence[Wave],
    rate: int,
    s: SoundSettings,
    draw: np.random.RandomState,
    after: np.random.RandomState | None = None,
) -> Wave:
    """The recordings ``waves``, one after the other, as training hears them. Speaker and pauses follow from ``draw``; so does all the
    rest, or from ``after``: with the same ``draw`` and another ``after`` words stand at the same places in another room."""
    factor = float(draw.uniform(1 - s.speed, 1 + s.speed))
    spoken = [speed(wave, factor) for wave in waves]
    if s.pitch:
        factor = float(draw.uniform(1 - s.pitch, 1 + s.pitch))
        spoken = [pitch(wave, factor, rate) for wave in spoken]
    wave = _with_pauses(spoken, rate, s.pauses, draw)
    draw = draw if after is None else after
    if s.reverberation:
        seconds, share = draw.uniform(0, s.reverberation), draw.uniform(0, 1)
        wave = reverberate(wave, float(seconds), float(share), rate, draw)
    if s.noise:
        level = float(draw.uniform(0, s.noise))
        wave = noise(wave, level, draw, slope=float(draw.uniform(0, _DULLEST)))
    if s.channel:
        wave = colour(wave, s.channel, draw)
    if s.volume:
        wave = wave * np.float32(10 ** (draw.uniform(-s.volume, s.volume) / 20))
    return wave


def _with_pauses(waves: Sequence[Wave], rate: int, longest: float, draw: np.random.RandomState) -> Wave:
    """The sounds with up to ``longest`` seconds of quiet before, between and after them, as quiet as they are themselves."""
    if not longest:
        return waves[0] if len(waves) == 1 else np.concatenate(waves)
    level = min(quiet(wave, rate) for wave in waves)
    parts = [pause(level, float(draw.uniform(0, longest)), rate, draw)]
    for wave in waves:
        parts += [wave, pause(level, float(draw.uniform(0, longest)), rate, draw)]
    return np.concatenate(parts)
