"""Sums, marginals and best paths over a linear chain of tags.

A chain of n places with K tags has the score

    s(y) = start[y_1] + Σ_t emissions[t, y_t] + Σ_t transitions[y_{t−1}, y_t] + end[y_n]

Everything here is batched: emissions ``(batch, time, K)``, lengths ``(batch,)`` of real places; a chain of length 0
has one path, the empty one, with score 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.native.c import CLibrary, beside, check
from anaphora.native.fused import Backward, fused


# ----------------------------------------------------------------------
# log Z = log Σ_y exp s(y): by scaled sums with a known gradient where that is safe, else in the log domain.
def log_partition(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> Tensor:
    """log Z ``(batch,)`` of each chain, differentiable; scores may be infinite or NaN, which makes it slower.

    Each row is decided on its own: its result does not depend on the rows beside it.
    """
    if not emissions.shape[0]:
        return emissions.sum((1, 2))
    scores = (emissions, *(x.to(emissions.dtype) for x in (transitions, start, end)))
    total: Tensor
    total, safe = _scaled(*scores, lengths)
    if bool(safe.all()):
        return total
    others = ~safe
    exact = in_log_domain(emissions[others], transitions, start, end, lengths[others])
    return total.index_put((others.nonzero().squeeze(1),), exact.to(total.dtype))


def _forward(
    keep: bool, emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[tuple[Tensor, Tensor], Sequence[Tensor]]:
    """Return log Z and whether it can be relied on, both ``(batch,)``; rows that are not safe have no gradient."""
    log_z, safe, *known = chain_sums(emissions, transitions, start, end, lengths, gradient=keep)
    return (log_z.to(emissions.dtype), safe), known


def _backward(back: Backward) -> tuple[Tensor | None, ...]:
    kept, tensors, grads, _ = back
    (marginals, counts), gradient = kept, grads[0]
    last = (tensors[4] - 1).clamp(min=0)
    ended = marginals[torch.arange(len(last), device=last.device), last]
    moved = (gradient @ counts.flatten(1)).view(counts.shape[1:])
    return (
        marginals * gradient[:, None, None],
        moved,
        gradient @ marginals[:, 0],
        gradient @ ended,
        None,
    )


def _by_torch(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the same as `_forward`, differentiable any number of times."""
    with torch.no_grad():
        safe = safe_rows(emissions, transitions, start, end, lengths)
    kept = torch.where(safe[:, None, None], emissions, emissions.new_zeros(()))
    return in_log_domain(kept, transitions, start, end, lengths), safe


_scaled = fused(_forward, _backward, _by_torch)


def in_log_domain(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> Tensor:
    """log Z by the forward recursion: slow, differentiable any number of times, right for any scores.

    α_1 = start + e_1,    α_t[j] = e_t[j] + log Σ_i exp(α_{t−1}[i] + transitions[i, j])
    """
    first, *rest = emissions.unbind(1)
    alpha = start + first
    for t, emitted in enumerate(rest, 1):
        moved = emitted + _logsumexp(alpha.unsqueeze(2) + transitions, 1)
        alpha = torch.where((t < lengths)[:, None], moved, alpha)
    total = _logsumexp(alpha + end, 1)
    return torch.where(lengths > 0, total, torch.zeros_like(total))


def _logsumexp(x: Tensor, dim: int) -> Tensor:
    """log Σ exp, with a zero gradient instead of NaN where everything is −inf."""
    nothing = (x == -torch.inf).all(dim, keepdim=True)
    total = torch.logsumexp(x.masked_fill(nothing, 0.0), dim)
    return total.masked_fill(nothing.squeeze(dim), -torch.inf)


# ----------------------------------------------------------------------
# log Z and its gradient by scaled forward and backward sums: products instead of logarithms.
#
# The gradient of log Z is known, so there is nothing to differentiate: with respect to an emission it is the
# probability of that tag at that place, with respect to a transition its expected count. Both directions of time go
# through one loop, since the backward sums are the forward sums of the reversed chain with transposed transitions.
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
    if library.ready(e, t, s, f):
        return native_sums(e, t, s, f, lengths, gradient=gradient)
    log_z, safe, marginals, counts = _sums_by_torch(e.double(), t.double(), s.double(), f.double(), lengths)
    return log_z, safe, marginals.to(emissions.dtype), counts.to(emissions.dtype)


def _sums_by_torch(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What csrc/crf.c does, in torch operations."""
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


# ---------------------------------------------------------------------- the best path, and the k best
def viterbi(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The tags ``(batch, time)`` of each best path, 0 past its end, and its score ``(batch,)``.

    δ_t[j] = e_t[j] + max_i (δ_{t−1}[i] + transitions[i, j]), in double precision; of equal ones the lowest tag.
    """
    dtype = emissions.dtype
    emissions, transitions, start, end = (x.double() for x in (emissions, transitions, start, end))
    best = native_viterbi if library.ready(emissions, transitions, start, end) else chain_viterbi
    path, score = best(emissions, transitions, start, end, lengths)
    return path, score.to(dtype)


def chain_viterbi(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The same in torch operations."""
    into = transitions.T.contiguous()  # [j, i], so that the maximum runs over neighbours in memory
    first, *rest = emissions.unbind(1)
    delta = start + first
    deltas = [delta]
    for emitted in rest:
        delta = emitted + (delta.unsqueeze(1) + into).amax(-1)
        deltas.append(delta)
    finals = torch.stack(deltas, 1) + end
    last = (lengths - 1).clamp(min=0)
    score, tag = torch.take_along_dim(finals, last[:, None, None], 1).squeeze(1).max(-1)
    # Going back, only the best predecessor of the tag on the path is needed: found when it is.
    tags = [tag]
    for t in range(len(deltas) - 2, -1, -1):
        previous = (deltas[t] + into[tag]).argmax(-1)
        tag = torch.where(t < last, previous, tag)
        tags.append(tag)
    path = torch.stack(tags[::-1], 1)
    real = torch.arange(path.shape[1], device=path.device) < lengths[:, None]
    return path.masked_fill(~real, 0), torch.where(lengths > 0, score, torch.zeros_like(score))


def k_best(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k best paths ``(batch, k, time)``, best first, and their scores ``(batch, k)``.

    A chain with fewer than k paths fills the rest with tag 0 and score −inf. Each tag keeps the k best ways into it.
    """
    time, tags = emissions.shape[1:]
    first, *rest = emissions.unbind(1)
    ways = (start + first).unsqueeze(-1)  # (batch, tag, way)
    ways = torch.nn.functional.pad(ways, (0, k - 1), value=-torch.inf)
    origins: list[Tensor] = []
    stay = torch.arange(tags * k, device=emissions.device).view(1, tags, k)
    for t, emitted in enumerate(rest, 1):
        into = ways.unsqueeze(1) + transitions.T[None, :, :, None]  # (batch, to, from, way)
        best, origin = into.flatten(2).topk(k, -1)
        going = (t < lengths)[:, None, None]
        ways = torch.where(going, best + emitted.unsqueeze(-1), ways)
        origins.append(torch.where(going, origin, stay))
    scores, here = (ways + end[None, :, None]).flatten(1).topk(k, -1)
    path = [here // k]
    for origin in reversed(origins):
        here = origin.flatten(1).gather(1, here)
        path.append(here // k)
    found = torch.stack(path[::-1], -1)
    real = torch.arange(time, device=emissions.device) < lengths[:, None]
    found = found.masked_fill(~real[:, None] | (scores == -torch.inf)[..., None], 0)
    empty = torch.full_like(scores, -torch.inf)
    empty[:, 0] = 0.0
    return found, torch.where((lengths > 0)[:, None], scores, empty)


# ---------------------------------------------------------------------- the chain's inner loops in C, where there is a compiler
library = CLibrary(
    "crf",
    lambda double: beside(__package__, "csrc/crf.c"),
    no_memory="CRF: there is no memory for the sums of one chain; use shorter ones.",
)


def native_sums(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    lengths: Tensor,
    *,
    gradient: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `scaled.chain_sums`; all scores are of one type, float32 or float64."""
    if emissions.dtype not in library.dtypes:
        raise ValueError(f"CRF: scores must be float32 or float64, got {emissions.dtype}.")
    given = _checked(emissions, transitions, start, end, lengths)
    batch, time, tags = emissions.shape
    log_z = torch.empty(batch, dtype=torch.float64)
    safe = torch.empty(batch, dtype=torch.bool)
    marginals = emissions.new_empty(emissions.shape if gradient else 0)
    counts = emissions.new_empty((batch, tags, tags) if gradient else 0)
    sizes = (batch, time, tags, emissions.dtype == torch.float32, gradient)
    _call("crf_sums", sizes, (*given, log_z, safe, marginals, counts))
    return log_z, safe, marginals, counts


def native_viterbi(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """See `paths.chain_viterbi`; all scores are doubles."""
    given = _checked(emissions, transitions, start, end, lengths)
    if emissions.dtype != torch.float64:
        raise ValueError(f"CRF: scores must be float64, got {emissions.dtype}.")
    path = torch.empty(emissions.shape[:2], dtype=torch.int64)
    score = emissions.new_empty(emissions.shape[0])
    _call("crf_viterbi", emissions.shape, (*given, path, score))
    return path, score


def _checked(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, ...]:
    """The same, contiguous; ValueError where shapes or types do not go together."""
    if emissions.dim() != 3 or not emissions.shape[2]:
        raise ValueError(f"CRF: emissions must be (batch, time, tags), got {tuple(emissions.shape)}.")
    batch, _, tags = emissions.shape
    given = tuple(x.contiguous() for x in (emissions, transitions, start, end, lengths.long()))
    names = ("emissions", "transitions", "start", "end", "lengths")
    shapes = (tuple(emissions.shape), (tags, tags), (tags,), (tags,), (batch,))
    for name, tensor, shape in zip(names, given, shapes, strict=True):
        check(f"CRF: {name}", tensor, shape, torch.int64 if name == "lengths" else emissions.dtype)
    return given


def _call(name: str, sizes: tuple[int, ...], tensors: tuple[Tensor, ...]) -> None:
    def lengths_and_places() -> str:
        return f"CRF: lengths must be numbers between 0 and the {sizes[1]} places, got {tensors[4].tolist()}."

    library.call(tensors[0].dtype, name, sizes, tensors, out_of_range=lengths_and_places)
