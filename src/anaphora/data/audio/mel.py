"""The features of Whisper (Radford et al. 2022): logarithms of mel energies, whose range is bounded by their greatest."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from anaphora.data.vectors import Array

MOST = 3000
"""Frames that the published models hear at a time, 30 s."""
HOP = 160
"""Samples from one frame to the next."""
_SIZE, _LOW, _RANGE = 400, 1e-10, 8.0


class WhisperMel:
    """With E_t(m) the energies of ``bins`` filters (Slaney's mel scale and areas) in a window of 400 samples around sample 160 t:

        y = log₁₀ max(E, 1e-10),    x = (max(y, max y − 8) + 4) / 4

    Before the beginning the sound is mirrored, after its end there is silence up to ``most`` frames. Frames after the last one
    with any sound in it are all alike (`silence`), so they are left to the model. Spectra are computed in float64.
    """

    def __init__(self, rate: int, bins: int, most: int = MOST):
        self.rate, self.width, self.most = rate, bins, most
        self._filters = torch.from_numpy(slaney_filters(rate, _SIZE, bins))  # (frequencies, bins)
        self._window = torch.hann_window(_SIZE, dtype=torch.float64)

    def frames(self, samples: int) -> int:
        """How many frames a sound of ``samples`` samples has."""
        heard = -(-(samples + _SIZE // 2) // HOP) if samples else 0
        return min(heard, max(self.most, samples // HOP))

    @torch.no_grad()
    def of(self, wave: Array) -> Array:
        """The frames ``(time, bins)`` of one sound ``(n,)``."""
        n = len(wave)
        if not n:
            return np.zeros((0, self.width), np.float32)
        whole = self.most * HOP
        room = max(n, whole) if n > whole - 2 * _SIZE else max(n, _SIZE) + _SIZE
        x = torch.zeros(room, dtype=torch.float64)
        x[:n] = torch.from_numpy(np.asarray(wave, dtype=np.float64))
        spectra = torch.stft(x, _SIZE, HOP, window=self._window, return_complex=True)
        power = torch.view_as_real(spectra[:, : self.frames(n)]).square().sum(-1)  # (frequencies, time)
        y = (power.T @ self._filters).clamp_min(_LOW).log10()
        y = (torch.maximum(y, y.max() - _RANGE) + 4.0) / 4.0
        found: Array = y.float().numpy()
        return found


def silence(frames: Tensor, real: Tensor) -> Tensor:
    """What a silent frame holds beside ``frames`` ``(batch, time, bins)``, of which those ``real`` ``(batch, time)`` count:
    ``(batch,)``, the lowest value in reach of each row's greatest."""
    lowest = torch.finfo(frames.dtype).min
    greatest = frames.masked_fill(~real.unsqueeze(-1), lowest).amax((1, 2))
    return (greatest - _RANGE / 4).clamp_min((math.log10(_LOW) + 4) / 4)


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
