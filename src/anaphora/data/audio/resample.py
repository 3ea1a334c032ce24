"""Another number of samples per second, by a low-pass filter that is evaluated only where a sample is wanted."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from anaphora.errors import DataError

CROSSINGS = 32
"""Zero crossings of the filter on each side: more make its edge steeper."""
ROLLOFF = 0.92
"""Where the filter's edge is, as a share of the lower of the two highest frequencies."""
_SIDELOBES = 8.0  # the Kaiser window's β: what is filtered out lies about 80 dB below
_TOGETHER = 1 << 15
_MOST_PHASES = 1 << 16
"""Filters that are kept; rates in use need a few hundred (44 100 → 16 000 Hz: 160)."""


def resample(x: Tensor, from_rate: int, to_rate: int) -> Tensor:
    """The sound ``x`` (…, n) at ``to_rate`` instead of ``from_rate`` samples a second: (…, ⌈n · to/from⌉).

        y_m = Σ_n x_n h(m · from/to − n),    h(t) = c sinc(c t) w(c t / Z),    c = 0.92 min(1, to/from)

    with sinc(t) = sin(πt)/πt and w Kaiser's window of β = 8 on −1 … 1, so that each y_m is a sum over Z = 32 zero
    crossings on each side. Since from/to = p/q in lowest terms, only q different filters occur (polyphase).
    Frequencies up to 0.84 of the lower of the two highest frequencies pass unchanged (within 0.1 dB); what would
    come back as an alias lies 70 dB lower. Beyond its ends a sound is silent.
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
    filters = _filters(p, q).to(x)
    reach = filters.shape[1] // 2
    samples = x.shape[-1]
    wanted = -(-samples * q // p)
    padded = torch.nn.functional.pad(x, (reach, reach + 1))
    taps = torch.arange(filters.shape[1], device=x.device)
    parts = []
    for begin in range(0, wanted, _TOGETHER):
        m = torch.arange(begin, min(begin + _TOGETHER, wanted), device=x.device)
        nearest = m * p // q  # the sample at or before the wanted place
        parts.append((padded[..., nearest[:, None] + taps] * filters[m % q]).sum(-1))
    return torch.cat(parts, dim=-1)


@lru_cache(maxsize=8)
def _filters(p: int, q: int) -> Tensor:
    """(q, taps): row m mod q holds h(frac(m p/q) − k) for the samples k = −reach … reach around ⌊m p/q⌋."""
    c = ROLLOFF * min(1.0, q / p)
    reach = math.ceil(CROSSINGS / c)
    phase = (torch.arange(q, dtype=torch.float64) * p % q) / q
    t = c * (phase[:, None] - torch.arange(-reach, reach + 1, dtype=torch.float64))
    inside = (1 - (t / CROSSINGS).square()).clamp_min(0).sqrt()
    beta = torch.tensor(_SIDELOBES, dtype=torch.float64)
    window = torch.special.i0(beta * inside) / torch.special.i0(beta)
    filters: Tensor = c * torch.sinc(t) * window * (t.abs() <= CROSSINGS)
    return filters
