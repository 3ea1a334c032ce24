"""A voice made of sums and products: pulses and noise through resonances that move.

Only the pseudo-random integers and IEEE sums and products lead from sample to sample, so the sound is the same on
every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anaphora.native.jit import njit

Floats = NDArray[np.float64]
FORMANTS = 4


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def speak(
    pitch: Floats, levels: Floats, formants: Floats, hiss: Floats, step: int, tilt: float, seed: int
) -> Floats:
    """The samples (T·step,) of T control frames of ``step`` samples each.

    pitch: (T,) cycles per sample. levels: (T, 3), how loud voicing, breath and hiss are. formants: (T, 4, 3) and hiss:
    (T, 3), the coefficients a, b, c of resonators y_n = a x_n + b y_{n−1} + c y_{n−2}. ``tilt`` smooths the pulses,
    x_n = (1 − tilt) p_n + tilt x_{n−1}, twice. Voicing and breath go through the four formants in turn, hiss through a
    resonance of its own.
    """
    frames = len(pitch)
    out = np.empty(frames * step)
    y1, y2 = np.zeros(FORMANTS), np.zeros(FORMANTS)
    h1 = h2 = smooth = smoother = phase = last = 0.0
    level = levels[0].copy()
    state = np.uint64(seed * 2_654_435_761 + 88_172_645_463_325_252)
    for t in range(frames):
        for n in range(step):
            for j in range(3):  # levels glide, or each change would click
                level[j] += 0.1 * (levels[t, j] - level[j])
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            noise = np.float64(state >> np.uint64(40)) / 8_388_608.0 - 1.0
            phase += pitch[t]
            pulse = 0.0
            if phase >= 1.0:
                phase -= 1.0
                pulse = 1.0 / pitch[t] ** 0.5
            smooth = (1.0 - tilt) * pulse + tilt * smooth
            smoother = (1.0 - tilt) * smooth + tilt * smoother
            x = level[0] * (smoother - last) + level[1] * noise
            last = smoother
            for k in range(FORMANTS):
                y = formants[t, k, 0] * x + formants[t, k, 1] * y1[k] + formants[t, k, 2] * y2[k]
                y2[k] = y1[k]
                y1[k] = y
                x = y
            y = hiss[t, 0] * noise + hiss[t, 1] * h1 + hiss[t, 2] * h2
            h2 = h1
            h1 = y
            out[t * step + n] = x + level[2] * y
    return out
