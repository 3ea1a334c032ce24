"""log Z = log Σ_y exp s(y): by scaled sums with a known gradient where that is safe, else in the log domain."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.native.fused import Backward, fused
from anaphora.ops.crf.scaled import chain_sums, safe_rows


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
