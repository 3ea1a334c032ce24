"""log Z and its gradient by scaled forward and backward sums: products instead of logarithms.

The gradient of log Z is known, so there is nothing to differentiate: with respect to an emission it is the
probability of that tag at that place, with respect to a transition its expected count. Both directions of time go
through one loop, since the backward sums are the forward sums of the reversed chain with transposed transitions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora.ops.crf import native

_FURTHEST = 600.0
"""How far the scores of a row may lie apart. A tag's share of a sum is at least exp(−r)/K, with r how far scores lie
apart at one place and in one transition, and doubles reach down to exp(−708)."""


def chain_sums(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    lengths: Tensor,
    *,
    gradient: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sums of a batch of chains, computed in double precision.

    Returns log Z ``(batch,)`` in float64; which rows are safe ``(batch,)``: not those whose scores lie so far apart that
    a sum might underflow, or are infinite or NaN at a real place; the marginals ``(batch, time, K)``, zero past each end;
    the expected counts of transitions ``(batch, K, K)``. Rows that are not safe get zeros. Without ``gradient`` the last
    two may have any shape.
    """
    e, t, s, f = emissions.detach(), transitions.detach(), start.detach(), end.detach()
    if native.library.ready(e, t, s, f):
        return native.sums(e, t, s, f, lengths, gradient=gradient)
    log_z, safe, marginals, counts = _in_torch(e.double(), t.double(), s.double(), f.double(), lengths)
    return log_z, safe, marginals.to(emissions.dtype), counts.to(emissions.dtype)


def _in_torch(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What chain.c does, in torch operations."""
    place = torch.arange(emissions.shape[1], device=emissions.device)
    safe = safe_rows(emissions, transitions, start, end, lengths)
    real = (place < lengths[:, None]) & safe[:, None]
    emissions = emissions.masked_fill(~real[..., None], 0.0)
    highest = emissions.amax(-1)
    if not bool(safe.any()):
        transitions, start, end = (torch.zeros_like(x) for x in (transitions, start, end))
    moves, begin, finish = ((x - x.max()).exp_() for x in (transitions, start, end))

    chances = (emissions - highest[..., None]).exp_()
    lengths = lengths * safe
    mirrored = lengths[:, None] - 1 - place
    mirror = torch.where(mirrored >= 0, mirrored, place)[..., None]
    before, forward, scale, after, backward = _both_ways(chances, mirror, moves, begin, finish)
    last = (lengths - 1).clamp(min=0)[:, None, None]
    final = (torch.take_along_dim(forward, last, 1).squeeze(1) * finish).sum(-1)
    log_z = final.log() + scale.log().masked_fill(~real, 0.0).sum(-1) + highest.sum(-1)
    log_z += start.max() + end.max() + transitions.max() * (lengths - 1)
    marginals = _normalised(forward * after, real)
    following = _normalised(backward, real, before)[:, 1:]  # divided by Σ_ij f[i] moves[i, j] b[j]
    counts = torch.bmm(forward[:, :-1].transpose(1, 2), following).mul_(moves)
    return torch.where(lengths > 0, log_z, 0.0), safe, marginals, counts


def safe_rows(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor) -> Tensor:
    """Return which rows ``(batch,)`` have scores that lie so near each other that no sum underflows."""
    real = torch.arange(emissions.shape[1], device=emissions.device) < lengths[:, None]
    lowest, highest = emissions.masked_fill(~real[..., None], 0.0).aminmax(dim=-1)
    apart = (highest - lowest).amax(-1)
    for scores in (transitions, start, end):
        apart = apart + (scores.max() - scores.min())
    return (apart < _FURTHEST) | (lengths == 0)  # NaN is not below, either


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
