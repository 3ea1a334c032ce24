"""Sound as the frames that a model reads, in numpy: the equations are those of `anaphora.data.audio.features`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.audio.files import AUDIO_ENDINGS, as_wave, read_audio
from anaphora.data.audio.preprocessing import LEAST, LOUD, Usual, WhisperMel, edged, levelled
from anaphora.data.audio.warping import warp
from anaphora.data.sources.arrays import ENDINGS, as_sequence, read_numbers
from anaphora.errors import DataError

FLOOR, FAINTEST, PREEMPHASIS, LOW = 1e-10, 1e-8, 0.97, 20.0
DEPTH, SCALE = 5.0, 3.0  # of `anaphora.data.audio.frames`
NORMALISED = ("features", "means", "level", "speech", "adapted", "running", "unit", "none")
TOGETHER = 4096
"""Frames that are transformed at once."""
Frames = NDArray[np.float32]


class Ear:
    """Recordings to frames ``(time, width)``; ``kind`` is ``audio`` or ``features``."""

    def __init__(
        self,
        kind: str,
        rate: int,
        width: int,
        settings: Mapping[str, Any],
        usual: Sequence[Sequence[float]] | None = None,
    ):
        if kind not in ("audio", "features") or width < 1 or (kind == "audio" and rate < 1):
            raise ValueError("it does not say what the model hears")
        self.kind, self.rate, self.width = kind, rate, width
        self.hop = float(settings["hop"])
        self._normalise = str(settings["normalise"])
        if self._normalise not in NORMALISED:
            raise ValueError(f"normalise: {self._normalise[:20]!r} is not known")
        self._usual: Usual | None = None
        if self._normalise in ("adapted", "running"):
            if usual is None or [len(row) for row in usual] != [width, width]:
                raise ValueError("it does not say what sound is usually like")
            bands = _bands(settings) if settings["features"] == "mfcc" else 0
            mean, deviation = (np.array(row, np.float32) for row in usual)
            self._usual = Usual(mean, deviation, bands)
        self._plain = settings["features"] == "samples"
        self._least, self.margin = (int(settings.get(name, 0)) for name in ("least", "margin"))
        self._whisper: WhisperMel | None = None
        if settings["features"] == "whisper":
            self._whisper = WhisperMel(rate, int(settings["bins"]), int(settings["most"]))
        elif kind == "audio" and not self._plain:
            self._mfcc = settings["features"] == "mfcc"
            bins = int(settings["bins"])
            self._bins = _bands(settings) if self._mfcc else bins
            self._power = float(settings.get("power", 0.0))
            self._size, self._step = round(float(settings["frame_length"]) * rate), round(self.hop * rate)
            self._points = 1 << (self._size - 1).bit_length()
            n = np.arange(self._size)
            self._window = 0.5 - 0.5 * np.cos(2 * math.pi * n / self._size)
            corners = _mel_corners(rate, self._bins)
            self._centres = corners[1:-1]
            self._filters = _mel_filters(rate, self._points, corners).astype(np.float32)
            self._transform = _cosines(self._bins, bins).astype(np.float32) if self._mfcc else None

    def hear(self, source: Any, number: int, tract: float = 1.0) -> Frames:
        """The frames of one input: a path, samples ``(n,)``, samples with their rate, or frames ``(time, width)``; of sound as if the
        speaker's vocal tract were ``tract`` times as long."""
        name = f"input {number}"
        if isinstance(source, str | Path):
            name = str(source)
            if Path(source).suffix.lower() in ENDINGS:
                return self._checked(as_sequence(read_numbers(Path(source)), name), name, sound=False)
            known = ", ".join((*AUDIO_ENDINGS, *ENDINGS))
            if Path(source).suffix.lower() not in AUDIO_ENDINGS:
                raise DataError(f"{source} has an ending that is not read; give one of {known}.")
            wave, rate = read_audio(source)
            return self._of_wave(wave, rate, name, tract)
        rate = self.rate
        if isinstance(source, tuple):
            source, rate = source
        x = as_sequence(source, name)
        if np.ndim(source) == 1:
            return self._of_wave(as_wave(source, name), int(rate), name, tract)
        return self._checked(x, name, sound=False)

    def _of_wave(self, wave: Frames, rate: int, name: str, tract: float) -> Frames:
        if self.kind == "audio" and rate != self.rate:
            raise DataError(
                f"{name} has {rate} samples a second and the model hears {self.rate}; bring it to that rate first."
            )
        found = self._features(wave) if self.kind == "audio" else wave[:, None]
        return self._checked(found if tract == 1 else self._warped(found, tract), name, sound=True)

    def _warped(self, found: Frames, tract: float) -> Frames:
        smooth = found if self._transform is None else found @ self._transform.T
        warped: Frames = warp(smooth, tract, self._centres.tolist())
        return warped if self._transform is None else warped @ self._transform

    def _checked(self, found: Frames, name: str, *, sound: bool) -> Frames:
        if sound != (self.kind == "audio"):
            wanted = "sound" if self.kind == "audio" else "frames (.npy, .csv)"
            raise DataError(f"{name} is not {wanted}, which the model was trained on; give such.")
        if found.shape[1] != self.width:
            raise DataError(
                f"{name} has {found.shape[1]} numbers in a frame, but the model was trained on {self.width}; give such."
            )
        found = np.asarray(found, dtype=np.float32)
        if self._usual is None:
            found = normalised(found, self._normalise)
        else:
            found = (
                self._usual.adapted(found) if self._normalise == "adapted" else self._usual.running()(found)
            )
        return np.pad(found, ((0, max(0, self._least - len(found))), (0, 0)))

    def _features(self, wave: Frames) -> Frames:
        if self._plain:
            return wave[:, None]
        if self._whisper is not None:
            return self._whisper.of(wave)
        x = edged(wave, self.margin * self._step, self.rate).astype(np.float64)
        if not len(x):
            return np.zeros((0, self.width), np.float32)
        x = x - PREEMPHASIS * np.concatenate(([0.0], x[:-1]))
        x = np.pad(x, (0, max(0, self._size - len(x))))
        frames = np.lib.stride_tricks.sliding_window_view(x, self._size)[:: self._step]
        parts = []
        for begin in range(0, len(frames), TOGETHER):
            spectra = np.fft.rfft(frames[begin : begin + TOGETHER] * self._window, self._points)
            power = (spectra.real**2 + spectra.imag**2).astype(np.float32)
            parts.append(np.log(np.maximum(power @ self._filters, np.float32(FLOOR))))
        found: Frames = np.concatenate(parts)
        if self._power:
            found = _powers(found, self._power)
        return found if self._transform is None else found @ self._transform


def normalised(x: Frames, how: str) -> Frames:
    """The frames without the level or the channel of the recording, see `anaphora.data.audio.frames`."""
    if not len(x) or how == "none":
        return x
    if how == "speech":
        return np.asarray(np.maximum(levelled(x), -DEPTH) / SCALE, np.float32)
    over = None if how in ("level", "unit") else 0
    wide = x.astype(np.float64)
    wide = wide - wide.mean(over, keepdims=True)
    if how == "unit":
        wide = wide / np.sqrt((wide**2).mean() + 1e-7)
    elif how != "means":
        wide = wide / np.maximum(np.sqrt((wide**2).mean(over, keepdims=True)), LEAST)
    found: Frames = wide.astype(np.float32)
    return found


def _bands(settings: Mapping[str, Any]) -> int:
    """Of how many bands mfcc are made; 40 where an export says nothing."""
    return max(int(settings.get("bands", 0)) or 40, int(settings["bins"]))


def _powers(y: Frames, power: float) -> Frames:
    """Of log energies ``(time, bins)`` the powers that `MFCC` makes cepstra of."""
    loudness = y.mean(1)
    level = np.exp(y[loudness >= loudness.max() - LOUD]).mean()
    share = np.maximum(power * (y - np.log(level)), power * np.log(FAINTEST))
    found: Frames = (np.expm1(share) / power).astype(np.float32)
    return found


def _mel_corners(rate: int, bins: int) -> NDArray[np.float64]:
    """The corners of the filters of `LogMel` in Hz, ``(bins + 2,)``."""
    ends = [2595 * math.log10(1 + frequency / 700) for frequency in (LOW, rate / 2)]
    corners: NDArray[np.float64] = 700 * (10 ** (np.linspace(ends[0], ends[1], bins + 2) / 2595) - 1)
    return corners


def _mel_filters(rate: int, points: int, corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Λ of `LogMel`, ``(points/2 + 1, bins)``."""
    frequencies = np.arange(points // 2 + 1)[:, None] * (rate / points)
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (frequencies - left) / (peak - left), (right - frequencies) / (right - peak)
    found: NDArray[np.float64] = np.minimum(rising, falling).clip(min=0)
    return found


def _cosines(bins: int, count: int) -> NDArray[np.float64]:
    """The cosine transform of `MFCC`, ``(bins, count)``."""
    j, m = np.arange(count), np.arange(bins)
    found: NDArray[np.float64] = math.sqrt(2 / bins) * np.cos(math.pi * j * (m[:, None] + 0.5) / bins)
    found[:, 0] *= math.sqrt(0.5)
    return found
