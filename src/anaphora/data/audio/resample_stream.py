"""Another number of samples per second for a sound that arrives piece by piece."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from anaphora.data.audio.resample import _GROUP, _reach, resample


class ResampleStream:
    """Put together, its pieces are `resample` of the whole, but for rounding; it holds as much as the filter is long."""

    def __init__(self, from_rate: int, to_rate: int):
        self.rates = from_rate, to_rate
        common = math.gcd(from_rate, to_rate)
        p, q = from_rate // common, to_rate // common
        self._p, self._q = p * max(1, _GROUP // q), q * max(1, _GROUP // q)
        self._same = from_rate == to_rate
        self._context = (
            0 if self._same else -(-(_reach(self._p, self._q) + 1) // self._p)
        )  # periods on each side
        self._held = torch.zeros(0)
        self._done = (
            0  # periods of p samples that were handed out, counted from the beginning of what is held
        )

    def push(self, samples: Tensor) -> Tensor:
        """The samples (m,) at the new rate that ``samples`` (n,) make certain."""
        if self._same:
            return samples
        self._held = torch.cat((self._held, samples))
        ready = len(self._held) // self._p - self._context - 1
        if ready <= self._done:
            return samples.new_zeros(0)
        found = resample(self._held, *self.rates)[self._done * self._q : ready * self._q]
        keep = max(0, ready - self._context)  # periods that no later sample hears
        self._held, self._done = self._held[keep * self._p :], ready - keep
        return found

    def finish(self) -> Tensor:
        """The rest; after its end the sound is silent."""
        if self._same or not len(self._held):
            return self._held
        return resample(self._held, *self.rates)[self._done * self._q :]
