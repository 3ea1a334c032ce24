"""What fixed convolutions answer at every place of a sequence, and what is counted of it (Dempster et al. 2021)."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor
from torch.nn import functional as F

LENGTH = 9
"""Taps of a kernel."""
KERNELS = tuple(combinations(range(LENGTH), 3))
"""The three taps of each kernel that weigh 2; the other six weigh −1, so that a kernel sums to zero and no level moves it."""
_WEIGHING = [[k for k, chosen in enumerate(KERNELS) if tap in chosen] for tap in range(LENGTH)]
"""The kernels in which each tap weighs 2."""
PARTS = 4
"""Parts of a sequence, of about equal length, that are measured by themselves, besides the whole."""
MEASURES = 4


def convolved(x: Tensor, dilation: int, channels: Tensor) -> Tensor:
    """What every kernel answers at every place, ``(batch, kernels, time)``.

        u_t = Σ_{c ∈ channels} x_{c,t}        y_t = Σ_j w_j u_{t + (j − 4)·dilation}

    Args:
        x: ``(batch, features, time)``; beyond its ends there are zeros.
        dilation: steps from one tap to the next.
        channels: ``(kernels, n)``, the features that each kernel adds up; a number that is no feature adds nothing.

    All sums are of a fixed order and element by element, so that no other sequence of the batch changes a bit.
    """
    batch, _, time = x.shape
    step = max(1, min(dilation, time))  # a tap further away finds nothing but zeros either
    u = added(x, channels)
    wide = F.pad(u, (4 * step, 4 * step))
    taps = [wide[..., j * step : j * step + time] for j in range(LENGTH)]
    total = taps[0]
    for tap in taps[1:]:
        total = total + tap
    found = (-total).expand(batch, len(KERNELS), time).clone()
    for tap, kernels in zip(taps, _WEIGHING, strict=True):
        found[:, kernels] += 3 * (tap if u.shape[1] == 1 else tap[:, kernels])
    return found


def added(x: Tensor, channels: Tensor) -> Tensor:
    """u of `convolved`, ``(batch, kernels, time)``; ``(batch, 1, time)`` of one feature, which all kernels see."""
    features = x.shape[1]
    if features == 1:
        return x
    known = F.pad(x, (0, 0, 0, 1))  # the last row is that of no feature
    chosen = torch.where((channels < 0) | (channels > features), features, channels)
    found = known.index_select(1, chosen[:, 0])
    for one in chosen.T[1:]:
        found = found + known.index_select(1, one)
    return found


def shares(y: Tensor, thresholds: Tensor, lengths: Tensor, counting: torch.dtype = torch.int64) -> Tensor:
    """The share of places at which answers exceed each threshold.

    Args:
        y: answers ``(batch, kernels, time)``.
        thresholds: ``(kernels, n)``.
        lengths: places of each sequence that count, ``(batch,)``.
        counting: what counts are summed in.

    Returns ``(batch, kernels · n)``.
    """
    inside = torch.arange(y.shape[-1], device=y.device) < lengths[:, None]
    kept = y.masked_fill(~inside[:, None], float("-inf"))
    counts = torch.stack([(kept > one[:, None]).sum(-1, dtype=counting) for one in thresholds.unbind(1)], -1)
    return (counts / lengths.clamp_min(1)[:, None, None]).flatten(1).to(y.dtype)


def places(y: Tensor, lengths: Tensor) -> Tensor:
    """Where each kernel answers most, from −1 at the first place to 1 at the last; the first of several such places.

    y: answers ``(batch, kernels, time)``; returns ``(batch, kernels)``.
    """
    inside = torch.arange(y.shape[-1], device=y.device) < lengths[:, None]
    at = y.masked_fill(~inside[:, None], float("-inf")).argmax(-1)
    return (2 * at / (lengths - 1).clamp_min(1)[:, None] - 1).to(y.dtype)


def measures(x: Tensor, lengths: Tensor) -> Tensor:
    """Mean, deviation, least and greatest of each feature, over the whole sequence and over each of its four parts, and the logarithm of
    its length: what kernels that sum to zero do not see.

    x: ``(batch, features, time)``; returns ``(batch, 1 + features · 20)``. A part without a place is measured as zeros.
    """
    places = torch.arange(x.shape[-1], device=x.device)
    inside = places < lengths[:, None]
    part = places * PARTS // lengths.clamp_min(1)[:, None]
    exact = x.double()
    found = [lengths.clamp_min(1).double().log()[:, None]]
    for own in (inside, *(inside & (part == one) for one in range(PARTS))):
        mine = own[:, None]
        count = mine.sum(-1).clamp_min(1)
        empty = ~own.any(-1)[:, None]
        mean = (exact * mine).sum(-1) / count
        spread = ((exact - mean[..., None]).square() * mine).sum(-1) / count
        least = exact.masked_fill(~mine, float("inf")).amin(-1).masked_fill(empty, 0.0)
        most = exact.masked_fill(~mine, float("-inf")).amax(-1).masked_fill(empty, 0.0)
        found += [mean, spread.sqrt(), least, most]
    return torch.cat(found, 1).to(x.dtype)
