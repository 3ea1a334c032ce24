"""Sounds at another rate, whole or as they arrive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from anaphora.errors import DataError

# Another number of samples per second, by a low-pass filter that is evaluated only where a sample is wanted.

CROSSINGS = 32
"""Zero crossings of the filter on each side: more make its edge steeper."""
ROLLOFF = 0.92
"""Where the filter's edge is, as a share of the lower of the two highest frequencies."""
_SIDELOBES = 8.0  # the Kaiser window's β: what is filtered out lies about 80 dB below
_GROUP = 64  # neighbouring output samples that are computed by one product of matrices
_TOGETHER = 1 << 20  # numbers in the windows that are multiplied at once
_KEPT_PHASES = 1 << 10  # filters of ratios with at most so many are kept for the next time
_MOST_PHASES = 1 << 16  # different filters; rates in use need a few hundred (44 100 → 16 000 Hz: 160)


def resample(x: Tensor, from_rate: int, to_rate: int) -> Tensor:
    """The sound ``x`` (…, n) at ``to_rate`` instead of ``from_rate`` samples a second: (…, ⌈n · to/from⌉).

        y_m = Σ_n x_n h(m · from/to − n),    h(t) = c sinc(c t) w(c t / Z),    c = 0.92 min(1, to/from)

    with sinc(t) = sin(πt)/πt and w Kaiser's window of β = 8 on −1 … 1, so that each y_m is a sum over Z = 32 zero
    crossings on each side. Since from/to = p/q in lowest terms, only q different filters occur (polyphase).
    Up to 0.84 of the lower of the two highest frequencies sound passes unchanged, and what would come back as an
    alias is silenced, both but for an error that lies 80 dB lower. Beyond its ends a sound is silent.
    """
    if from_rate < 1 or to_rate < 1:
        raise DataError(f"From {from_rate} Hz to {to_rate} Hz cannot be resampled; rates are positive.")
    common = math.gcd(from_rate, to_rate)
    p, q = from_rate // common, to_rate // common
    if p == q or not x.shape[-1]:
        return x
    if q > _MOST_PHASES:
        raise DataError(
            f"From {from_rate} Hz to {to_rate} Hz takes {q} different filters, which is too many; choose a rate that has "
            f"more in common with {from_rate}."
        )
    p, q = p * max(1, _GROUP // q), q * max(1, _GROUP // q)  # the same ratio, in steps worth a product
    groups: Iterable[_Group] = _kept_filters(p, q) if q <= _KEPT_PHASES else _filters(p, q)
    reach = _reach(p, q)
    samples = x.shape[-1]
    wanted = -(-samples * q // p)
    steps = -(-wanted // q)
    padded = torch.nn.functional.pad(x, (reach, steps * p - samples + reach + 1))
    made = x.new_empty(*x.shape[:-1], steps, q)
    for group in groups:
        if group.first >= wanted:
            break
        matrix = group.matrix.to(x)
        windows = padded[..., group.begin :].unfold(-1, len(matrix), p)
        together = max(1, _TOGETHER // len(matrix))
        for step in range(0, steps, together):
            part = windows[..., step : min(step + together, steps), :] @ matrix
            made[..., step : step + together, group.first : group.first + matrix.shape[1]] = part
    return made.flatten(-2)[..., :wanted]


@dataclass(frozen=True)
class _Group:
    """What gives output samples ``first`` … of every q: input samples from ``begin`` on, times ``matrix``."""

    first: int
    begin: int
    matrix: Tensor


def _edge(p: int, q: int) -> float:
    """c of `resample`."""
    return ROLLOFF * min(1.0, q / p)


def _reach(p: int, q: int) -> int:
    """Input samples that are heard on each side."""
    return math.ceil(CROSSINGS / _edge(p, q))


def _filters(p: int, q: int) -> Iterator[_Group]:
    """The filters of the q phases, of neighbouring ones together: column m holds h(m p/q − n) over samples n."""
    c, reach = _edge(p, q), _reach(p, q)
    beta = torch.tensor(_SIDELOBES, dtype=torch.float64)
    for first in range(0, q, _GROUP):
        m = torch.arange(first, min(first + _GROUP, q), dtype=torch.float64)
        begin, end = first * p // q, int(m[-1]) * p // q
        n = torch.arange(begin - reach, end + reach + 2, dtype=torch.float64)
        # Whole numbers first: what is left of m p/q after its integer part is exact.
        t = c * ((m * p % q) / q + (m * p // q) - n[:, None])
        inside = (1 - (t / CROSSINGS).square()).clamp_min(0).sqrt()
        window = torch.special.i0(beta * inside) / torch.special.i0(beta)
        yield _Group(first, begin, c * torch.sinc(t) * window * (t.abs() <= CROSSINGS))


@lru_cache(maxsize=64)
def _kept_filters(p: int, q: int) -> list[_Group]:
    return list(_filters(p, q))


# Another number of samples per second for a sound that arrives piece by piece.


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
