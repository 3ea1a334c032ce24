"""Steps between a sound and its features that the runtime shares: quiet edges, log-mel of Whisper, usual values, windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.sources.arrays import Array

# Quiet before and after a recording that begins and ends with a word. Nothing here imports torch.

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

    >>> from anaphora.data.audio.preprocessing import edged
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


# Sound as it is: a frame is one sample, for networks that make their own features of it.


class Samples:
    """Samples ``(n,)`` as frames ``(n, 1)``, at ``rate`` samples a second."""

    width = 1

    def __init__(self, rate: int):
        self.rate = rate

    def frames(self, samples: int) -> int:
        """How many frames a sound of ``samples`` samples has."""
        return samples

    def of(self, wave: Array) -> Array:
        """The frames ``(n, 1)`` of one sound ``(n,)``."""
        return np.ascontiguousarray(wave, dtype=np.float32)[:, None]


# The features of Whisper (Radford et al. 2022): logarithms of mel energies, whose range is bounded by their greatest.

MOST = 3000
"""Frames that the published models hear at a time, 30 s."""
HOP = 160
"""Samples from one frame to the next."""
_SIZE, _LOW, RANGE = 400, 1e-10, 8.0
LEAST_MEL = (math.log10(_LOW) + 4) / 4
"""What a frame of no sound at all holds."""
_TOGETHER = 4096


class WhisperMel:
    """With E_t(m) the energies of ``bins`` filters (Slaney's mel scale and areas) in a window of 400 samples around sample 160 t:

        y = log₁₀ max(E, 1e-10),    x = (max(y, max y − 8) + 4) / 4

    Before the beginning the sound is mirrored, after its end there is silence up to ``most`` frames. Frames after the last one
    with any sound in it are all alike, so they are left to the model. Spectra are computed in float64.
    """

    def __init__(self, rate: int, bins: int, most: int = MOST):
        self.rate, self.width, self.most = rate, bins, most
        self._filters = slaney_filters(rate, _SIZE, bins)  # (frequencies, bins)
        self._window = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(_SIZE) / _SIZE)

    def frames(self, samples: int) -> int:
        """How many frames a sound of ``samples`` samples has."""
        heard = -(-(samples + _SIZE // 2) // HOP) if samples else 0
        return min(heard, max(self.most, samples // HOP))

    def of(self, wave: Array) -> Array:
        """The frames ``(time, bins)`` of one sound ``(n,)``."""
        n = len(wave)
        if not n:
            return np.zeros((0, self.width), np.float32)
        whole = self.most * HOP
        room = max(n, whole) if n > whole - 2 * _SIZE else max(n, _SIZE) + _SIZE
        x = np.zeros(room)
        x[:n] = np.asarray(wave, dtype=np.float64)
        mirrored = np.pad(x, _SIZE // 2, mode="reflect")
        windows = np.lib.stride_tricks.sliding_window_view(mirrored, _SIZE)[::HOP][: self.frames(n)]
        parts = []
        for begin in range(0, len(windows), _TOGETHER):
            spectra = np.fft.rfft(windows[begin : begin + _TOGETHER] * self._window)  # (time, frequencies)
            power = spectra.real**2 + spectra.imag**2
            parts.append(np.log10(np.maximum(power @ self._filters, _LOW)))
        y: NDArray[np.float64] = np.concatenate(parts)
        found: Array = ((np.maximum(y, y.max() - RANGE) + 4.0) / 4.0).astype(np.float32)
        return found


def slaney_filters(rate: int, size: int, bins: int) -> np.ndarray:
    """Triangles ``(size/2 + 1, bins)`` from 0 to 8000 Hz, equally far from each other on Slaney's mel scale (linear up to 1000 Hz,
    then logarithmic), each of area 1."""
    ends = np.array([0.0, 8000.0])
    bent = 15 + np.log(np.maximum(ends, 1e-3) / 1000) * (27 / math.log(6.4))
    low, high = np.where(ends >= 1000, bent, 3 * ends / 200)
    mels = np.linspace(low, high, bins + 2)
    corners = np.where(mels >= 15, 1000 * np.exp((mels - 15) * (math.log(6.4) / 27)), 200 * mels / 3)
    frequencies = np.linspace(0, rate // 2, size // 2 + 1)[:, None]
    rising = (frequencies - corners[:-2]) / np.diff(corners)[:-1]
    falling = (corners[2:] - frequencies) / np.diff(corners)[1:]
    found: np.ndarray = np.minimum(rising, falling).clip(min=0) * (2 / (corners[2:] - corners[:-2]))
    return found


LOUD = 4.6
"""Nats (20 dB) below the loudest frame from which a frame counts as speech."""
LEAST = 1e-3
"""Least standard deviation that is divided by: a feature that never changes stays zero."""
WEIGHT, WHOLE = 100.0, 30.0
"""Frames that the training set's mean and variance count for beside those of a recording: a second while it arrives, less where all of
it is there."""


PAUSE = 2.0
"""How far below the loudest frame so far a frame is a pause: in deviations, the mean over its features. Of log energies these are some 20 dB."""
SILENT = 3.5
"""How far below it a frame is silence, likewise: a soft voice after a loud one is none."""
FAINT = -4.0
"""What the loudest frame is taken to be before any, likewise."""
_STEPS = 2  # of levels in one deviation


@dataclass(frozen=True)
class Usual:
    """What features are like in the training set: mean and deviation of each, ``(F,)``.

    From it recordings are normalised that are short, or not over yet. With n frames of a recording, their mean μ_n and variance σ²_n,
    and the usual μ_0 and σ²_0 as if they had been seen in w frames,

        μ = (w μ_0 + n μ_n) / (w + n),    σ² = (w (σ²_0 + (μ_0 − μ)²) + n (σ²_n + (μ_n − μ)²)) / (w + n),    (x − μ) / σ

    "adapted" takes all frames of a recording, after the mean of its loud frames is taken away as in "speech", and w = 30; "running" takes
    for each frame those up to it, so that nothing that comes later is needed, and w = 100. It leaves out pauses, which lie far below the
    loudest frame so far: otherwise a minute of silence before a sentence would decide what the sentence is measured by.
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
    """See `Usual`; put together, what it gives of the pieces of a recording is what it gives of the whole, to the bit."""

    def __init__(self, usual: Usual):
        self._usual = usual
        self._sums = np.zeros(
            1 + 2 * len(usual.mean)
        )  # of the frames that count: how many, and the sums of them and of their squares
        self._levels: dict[
            int, Any
        ] = {}  # the same by level, since those fall away over which a frame towers
        self._loudest = round(
            _STEPS * FAINT
        )  # a recording that is silent so far is not measured by its silence
        self.levels: Any = np.zeros(0)
        """How loud each of the last frames ``(n,)`` is, in deviations."""
        self.sounding: Any = np.zeros(0, np.bool_)
        """Of each of the last frames ``(n,)``, whether it is more than silence."""

    def __call__(self, x: Array) -> Array:
        """The next frames ``(n, F)``."""
        if not len(x):
            return x
        apart = x.astype(np.float64) - self._usual.mean
        told = (
            slice(0, 1) if self._usual.bands else slice(None)
        )  # of mfcc the first alone says how loud it is
        apart_by = apart[:, told] / self._usual.deviation[told]
        levels = np.floor(_STEPS * apart_by.mean(1)).astype(np.int64)
        rows = np.concatenate((np.ones((len(x), 1)), apart, np.square(apart)), axis=1)
        loudest = np.maximum.accumulate(np.maximum(levels, self._loudest))
        rises = [0, *(np.flatnonzero(np.diff(loudest)) + 1).tolist(), len(x)]
        found = [
            self._counted(rows[first:end], levels[first:end], int(loudest[first]))
            for first, end in itertools.pairwise(rises)
        ]
        self.levels = levels / _STEPS
        self.sounding = levels >= loudest - round(_STEPS * SILENT)
        sums, width = np.concatenate(found), x.shape[1]
        return self._usual._scaled(apart, sums[:, :1], sums[:, 1 : 1 + width], sums[:, 1 + width :], WEIGHT)

    def fade(self, most: float) -> None:
        """Someone else may speak next: what was heard counts for at most so many frames from now on, and the loudest
        frame fades over some utterances, should one noise have been louder than all speech."""
        share = min(1.0, most / max(self._sums[0], 1.0))
        self._sums = share * self._sums
        self._levels = {level: share * sums for level, sums in self._levels.items()}
        self._loudest = max(self._loudest - _STEPS, round(_STEPS * FAINT))

    def _counted(self, rows: Any, levels: Any, loudest: int) -> Any:
        """The sums at each of some frames, of which none is louder than ``loudest``."""
        least = loudest - round(_STEPS * PAUSE)
        if loudest != self._loudest:
            self._loudest = loudest
            self._levels = {level: sums for level, sums in sorted(self._levels.items()) if level >= least}
            self._sums = _last(np.stack([np.zeros(rows.shape[1]), *self._levels.values()]))
        for level in np.unique(levels[levels >= least]).tolist():
            some = rows[levels == level]
            self._levels[level] = _last(np.stack([self._levels.get(level, np.zeros(rows.shape[1])), *some]))
        counting = np.where((levels >= least)[:, None], rows, 0.0)
        sums = np.concatenate((self._sums[None], counting)).cumsum(0)[1:]
        self._sums = sums[-1]
        return sums


def _last(rows: Any) -> Any:
    """The sum of rows one after the other, as a running sum has it."""
    return rows.cumsum(0)[-1]


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


# Long recordings in windows that overlap: what each says of its middle is put together.


@dataclass(frozen=True)
class Window:
    """Frames ``start`` … ``end`` of a recording, of which ``first`` … ``last`` are this window's own."""

    start: int
    end: int
    first: int
    last: int


def cut(frames: int, window: int, overlap: int, factor: int, margin: int = 0) -> list[Window]:
    """Windows of at most ``window`` frames, neighbours sharing ``overlap``; one window where the whole fits.

    All places are multiples of ``factor``, so that a subsampled frame is the same frame in every window. The windows'
    own parts follow each other without a gap. Of a model that leaves ``margin`` frames out at both ends of what it hears, neighbours share
    at least four times as many: else those would be heard in no window.
    """
    window = max(window // factor, 1) * factor
    half = max(overlap // 2 // factor, -(-2 * margin // factor)) * factor
    step = window - 2 * half
    if frames <= window or step <= 0:
        return [Window(0, frames, 0, frames)]
    windows, start = [], 0
    while start + window < frames:
        windows.append(Window(start, start + window, start + half if start else 0, start + window - half))
        start += step
    return [*windows, Window(start, frames, start + half, frames)]
