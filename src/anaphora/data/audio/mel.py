"""The features of Whisper (Radford et al. 2022): logarithms of mel energies, whose range is bounded by their greatest."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from anaphora.data.vectors import Array

MOST = 3000
"""Frames that the published models hear at a time, 30 s."""
HOP = 160
"""Samples from one frame to the next."""
_SIZE, _LOW, RANGE = 400, 1e-10, 8.0
LEAST = (math.log10(_LOW) + 4) / 4
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
