"""Sound as it is: a frame is one sample, for networks that make their own features of it."""

from __future__ import annotations

import numpy as np

from anaphora.data.vectors import Array


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
