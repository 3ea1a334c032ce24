"""log Z and its gradient by scaled forward and backward sums: products instead of logarithms.

The gradient of log Z is known, so there is nothing to differentiate: with respect to an emission it is the
probability of that tag at that place, with respect to a transition its expected count. Both directions of time go
through one loop, since the backward sums are the forward sums of the reversed chain with transposed transitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.kernels.crf import native


@dataclass(frozen=True)
class Sums:
    """log_z ``(batch,)``; marginals ``(batch, time, K)``, zero past each end; expected counts of transitions
    ``(batch, K, K)``, of the first tag and of the last ``(batch, K)``.
    """

    log_z: Tensor
    marginals: Tensor
    transitions: Tensor
    start: Tensor
    end: Tensor


def highest_if_safe(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> Tensor | None:
    """The highest emission of each place ``(batch, time)``; None if a sum might underflow in double precision.

    A tag's share of a sum is at least exp(−r)/K, with r how far scores lie apart at one place and in one
    transition, and doubles reach down to exp(−708). Infinite scores are left to the log domain.
    """
    lowest, highest = emissions.detach().aminmax(dim=-1)
    real = torch.arange(emissions.shape[1], device=emissions.device) < lengths[:, None]
    apart = (highest - lowest).masked_fill_(~real, 0.0).amax()
    for scores in (transitions, start, end):
        low, high = scores.detach().aminmax()
        apart = apart + (high - low)
    return highest if bool(apart < 600.0) else None  # not below for NaN, either


def forward_backward(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor, highest: Tensor
) -> Sums:
    """All sums of a batch of chains, in double precision; ``highest`` comes from `highest_if_safe`."""
    transitions, start, end, highest = (x.detach().double() for x in (transitions, start, end, highest))
    moves, begin, finish = ((x - x.max()).exp_() for x in (transitions, start, end))

    sums = native.sums if native.ready(emissions) else chain_sums
    log_sum, marginals, counts = sums(emissions.detach(), highest, moves, begin, finish, lengths)
    real = torch.arange(emissions.shape[1], device=emissions.device) < lengths[:, None]
    log_z = log_sum + highest.masked_fill(~real, 0.0).sum(-1)
    log_z += start.max() + end.max() + transitions.max() * (lengths - 1)
    last = (lengths - 1).clamp(min=0)[:, None, None]
    ended = torch.take_along_dim(marginals, last, 1).squeeze(1)
    return Sums(torch.where(lengths > 0, log_z, 0.0), marginals, counts, marginals[:, 0], ended)


def chain_sums(
    emissions: Tensor, highest: Tensor, moves: Tensor, begin: Tensor, finish: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums of products along all paths, in torch operations.

    emissions ``(batch, time, K)``, highest ``(batch, time)``; moves ``(K, K)``, begin and finish ``(K,)`` are
    scores after the exponential, and emissions are taken less the highest and after it.
    Returns the logarithm of the sum ``(batch,)``, the marginals ``(batch, time, K)`` and the expected counts of
    transitions ``(batch, K, K)``.
    """
    place = torch.arange(emissions.shape[1], device=emissions.device)
    real = place < lengths[:, None]
    chances = (emissions - highest[..., None]).exp_().masked_fill_(~real[..., None], 1.0)
    mirrored = lengths[:, None] - 1 - place
    mirror = torch.where(mirrored >= 0, mirrored, place)[..., None]
    before, forward, scale, after, backward = _both_ways(chances, mirror, moves, begin, finish)
    last = (lengths - 1).clamp(min=0)[:, None, None]
    final = (torch.take_along_dim(forward, last, 1).squeeze(1) * finish).sum(-1)
    log_sum = final.log() + scale.log().masked_fill(~real, 0.0).sum(-1)
    marginals = _normalised(forward * after, real)
    following = _normalised(backward, real, before)[:, 1:]  # divided by Σ_ij f[i] moves[i, j] b[j]
    counts = torch.bmm(forward[:, :-1].transpose(1, 2), following).mul_(moves)
    return log_sum, marginals, counts


def _both_ways(
    chances: Tensor, mirror: Tensor, moves: Tensor, begin: Tensor, finish: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Forward and backward sums, each ``(batch, time, K)``, up to a factor per place.

        before_1 = begin,   f_t = before_t ∘ chances_t / scale_t,   before_{t+1} = f_t · moves
        after_n = finish,   b_t = after_t ∘ chances_t / …,          after_{t−1} = moves · b_t

    Returns before, f, scale ``(batch, time)``, after, b.
    """
    both = torch.stack((chances, torch.take_along_dim(chances, mirror, 1)))
    step = torch.stack((moves, moves.T))
    u = torch.stack((begin, finish))[:, None].expand(2, chances.shape[0], -1)
    coming, scales = [], []
    for chance in both.unbind(2):
        s = u * chance
        total = s.sum(-1, keepdim=True)
        coming.append(u)
        scales.append(total)
        u = torch.bmm(s.div_(total), step)
    before, after = torch.stack(coming, 2).unbind(0)
    after = torch.take_along_dim(after, mirror, 1)
    scale = torch.stack([total[0, :, 0] for total in scales], 1)
    return before, before * chances / scale[..., None], scale, after, after * chances


def _normalised(x: Tensor, real: Tensor, weights: Tensor | None = None) -> Tensor:
    """x ``(batch, time, K)`` divided by its (weighted) sum over K at real places, zero at the others."""
    total = (x if weights is None else x * weights).sum(-1, keepdim=True)
    return (x / total).masked_fill_(~real[..., None], 0.0)
