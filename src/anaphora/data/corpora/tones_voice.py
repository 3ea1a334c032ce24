"""A synthetic voice: phones as targets of pulses, noise and resonances, and speakers who say them differently.

The source is a train of glottal pulses (voiced sounds) or noise (breath, hiss); the filter is four resonances, the
formants. A resonance of frequency F and bandwidth B at rate R is

    y_n = a x_n + b y_{n−1} + c y_{n−2},    c = −e^{−2πB/R},  b = 2 e^{−πB/R} cos(2πF/R),  a = 1 − b − c

(Klatt 1980). Each phone has one or more targets; between the middles of neighbouring targets the formants move along
straight lines, so what a vowel is like near a consonant tells the consonant too, as in speech.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.batches.pooled import random_of

RATE = 8_000
STEP = 40
"""Samples of a control frame: 5 ms."""
Array = np.ndarray[Any, np.dtype[np.floating[Any]]]


@dataclass(frozen=True)
class Target:
    """What a stretch of sound aims at: its length in seconds, three formants in Hz, and the levels of the sources.

    ``hiss`` is (level, frequency, bandwidth) of the noise that does not pass the formants.
    """

    seconds: float
    formants: tuple[float, float, float]
    voicing: float = 0.0
    breath: float = 0.0
    hiss: tuple[float, float, float] = (0.0, 2500.0, 800.0)
    damping: float = 1.0
    """Widens the bandwidths: the nose swallows sound."""


def _vowel(seconds: float, *formants: tuple[float, float, float]) -> tuple[Target, ...]:
    return tuple(Target(seconds / len(formants), one, voicing=1.0) for one in formants)


def _stop(
    place: tuple[float, float, float], burst: tuple[float, float, float], voiced: bool
) -> tuple[Target, ...]:
    """Silence while the mouth is closed (a murmur if voiced), the burst, and breath before an unvoiced one is over."""
    closed = Target(0.05, (250.0, *place[1:]), voicing=0.2 if voiced else 0.0, damping=2.0)
    released = Target(0.012, place, voicing=0.2 if voiced else 0.0, hiss=burst)
    after = (
        Target(0.008, place, voicing=0.7)
        if voiced
        else Target(0.03, place, breath=0.05, hiss=(0.02, 2500, 900))
    )
    return closed, released, after


def _fricative(
    seconds: float, place: tuple[float, float, float], hiss: tuple[float, float, float], voicing: float
) -> tuple[Target, ...]:
    return (Target(seconds, place, voicing=voicing, hiss=hiss),)


def _nasal(second: float, third: float) -> tuple[Target, ...]:
    return (Target(0.075, (260.0, second, third), voicing=0.5, damping=2.5),)


_LIPS, _TEETH, _PALATE = (350.0, 850.0, 2200.0), (350.0, 1750.0, 2650.0), (350.0, 2100.0, 2350.0)
_POP, _TICK, _KNOCK = (0.25, 700.0, 600.0), (0.45, 3300.0, 700.0), (0.45, 1900.0, 350.0)
_SHARP = (0.30, 3550.0, 450.0)
PHONES: dict[str, tuple[Target, ...]] = {
    "iy": _vowel(0.13, (290, 2250, 2950)),
    "ih": _vowel(0.09, (420, 1950, 2550)),
    "eh": _vowel(0.11, (560, 1780, 2500)),
    "ae": _vowel(0.14, (720, 1650, 2450)),
    "aa": _vowel(0.13, (760, 1150, 2450)),
    "ao": _vowel(0.13, (580, 850, 2450)),
    "uw": _vowel(0.13, (310, 900, 2250)),
    "ah": _vowel(0.08, (560, 1300, 2450)),
    "ay": _vowel(0.18, (740, 1200, 2450), (600, 1600, 2500), (360, 2050, 2600)),
    "p": _stop(_LIPS, _POP, voiced=False),
    "b": _stop(_LIPS, _POP, voiced=True),
    "t": _stop(_TEETH, _TICK, voiced=False),
    "d": _stop(_TEETH, _TICK, voiced=True),
    "k": _stop(_PALATE, _KNOCK, voiced=False),
    "g": _stop(_PALATE, _KNOCK, voiced=True),
    "f": _fricative(0.09, _LIPS, (0.08, 2600.0, 2500.0), 0.0),
    "th": _fricative(0.08, _TEETH, (0.06, 3200.0, 2000.0), 0.0),
    "dh": _fricative(0.045, _TEETH, (0.03, 3200.0, 2000.0), 0.4),
    "s": _fricative(0.11, _TEETH, _SHARP, 0.0),
    "z": _fricative(0.09, _TEETH, (0.2, *_SHARP[1:]), 0.25),
    "sh": _fricative(0.11, (350.0, 1850.0, 2500.0), (0.35, 2350.0, 450.0), 0.0),
    "m": _nasal(950.0, 2200.0),
    "n": _nasal(1550.0, 2550.0),
    "ng": _nasal(2050.0, 2300.0),
    "l": (Target(0.07, (380.0, 1050.0, 2750.0), voicing=0.6, damping=1.3),),
    "r": (Target(0.07, (360.0, 1150.0, 1550.0), voicing=0.7),),
}
SILENCE = Target(0.05, (500.0, 1500.0, 2500.0))
_BANDS = (60.0, 90.0, 130.0, 250.0)  # Hz, of the four formants


@dataclass(frozen=True)
class Speaker:
    """Who speaks: pitch in Hz, length of the vocal tract (formants are divided by it), pace, and colour of the voice."""

    pitch: float
    tract: float
    pace: float
    breath: float
    tilt: float
    noise: float
    """Level of the background, against that of the voice."""


def speaker(number: int, seed: int) -> Speaker:
    """The speaker of that number; all numbers are different people."""
    random = random_of(seed, number, 7)
    tract = random.uniform(0.86, 1.14)
    return Speaker(
        pitch=random.uniform(0.85, 1.15) * 150.0 / tract**2,
        tract=tract,
        pace=random.uniform(0.85, 1.2),
        breath=random.uniform(0.0, 0.02),
        tilt=random.uniform(0.3, 0.6),
        noise=random.uniform(0.02, 0.1),
    )


def say(
    words: list[list[str]], who: Speaker, random: np.random.RandomState, *, noise: float = 1.0
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The words, each a list of phones, as samples of 16 bits in −1 … 1: (n,).

    ``noise`` multiplies the level of the background.
    """
    from anaphora.data.corpora.voice import speak

    targets = _targets(words, random)
    paces = who.pace * random.uniform(0.85, 1.15, len(targets))
    ends = np.cumsum([one.seconds * pace for one, pace in zip(targets, paces, strict=True)])
    frames = np.arange(int(ends[-1] * RATE / STEP))
    times = (frames + 0.5) * (STEP / RATE)
    which = np.minimum(np.searchsorted(ends, times, side="right"), len(targets) - 1)
    middles = ends - np.diff(ends, prepend=0.0) / 2
    aims = np.array([one.formants for one in targets]) * random.uniform(0.97, 1.03, (len(targets), 3))
    tracks = np.stack([np.interp(times, middles, column) for column in aims.T], 1) / who.tract
    tracks = np.concatenate((tracks, np.full((len(tracks), 1), 3400.0 / who.tract)), 1)
    bands = np.array(_BANDS) * np.array([one.damping for one in targets])[which][:, None]
    hiss = np.array([one.hiss for one in targets])[which]
    levels = np.stack(
        (
            np.array([one.voicing for one in targets])[which],
            np.array([one.breath + who.breath * one.voicing for one in targets])[which],
            hiss[:, 0],
        ),
        1,
    )
    pitch = who.pitch * _melody(times, ends[-1], random) / RATE
    seed = int(random.randint(1, 1 << 31))
    voice = speak(
        pitch,
        levels,
        _resonators(tracks, bands),
        _resonators(hiss[:, 1] / who.tract**0.5, hiss[:, 2]),
        STEP,
        who.tilt,
        seed,
    )
    voice /= 16.0 * np.sqrt(np.mean(voice * voice))
    heard = voice + noise * who.noise * 0.2 * random.uniform(-1.0, 1.0, len(voice))
    return np.asarray(np.round(np.clip(heard, -1, 1) * 32_767) / 32_768, dtype=np.float32)


def _targets(words: list[list[str]], random: np.random.RandomState) -> list[Target]:
    """All targets in order, with silence around the sentence and sometimes between words."""
    found = [SILENCE, SILENCE]
    for word in words:
        found += [target for phone in word for target in PHONES[phone]]
        if random.random_sample() < 0.4:
            found.append(SILENCE)
    return [*found, SILENCE, SILENCE]


def _melody(times: Array, end: float, random: np.random.RandomState) -> Array:
    """Pitch over time as a factor: it sinks towards the end, with a few gentle bends."""
    bends = random.uniform(0.93, 1.07, 6)
    sinking = 1.12 - 0.24 * times / end
    return sinking * np.interp(times, np.linspace(0, end, 6), bends)


def _resonators(frequency: Array, bandwidth: Array) -> NDArray[np.float64]:
    """Coefficients a, b, c (…, 3), rounded so that machines agree on them to the last bit."""
    frequency = np.clip(frequency, 150.0, 0.47 * RATE)
    decay = np.exp(-np.pi * bandwidth / RATE)
    c = -decay * decay
    b = 2 * decay * np.cos(2 * np.pi * frequency / RATE)
    rounded = np.round(np.stack((1 - b - c, b, c), -1) * 2**24) / 2**24
    return np.ascontiguousarray(rounded, dtype=np.float64)
