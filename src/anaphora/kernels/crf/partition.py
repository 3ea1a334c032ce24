"""log Z = log Σ_y exp s(y): by scaled sums with a known gradient where that is safe, else in the log domain."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.kernels.crf.scaled import chain_sums


class _LogPartition(torch.autograd.Function):
    """log Z and whether it can be relied on, both ``(batch,)``; rows that are not safe have no gradient."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        log_z, safe, marginals, counts = chain_sums(*inputs, gradient=any(ctx.needs_input_grad))
        ctx.save_for_backward(*inputs, safe, marginals, counts)
        ctx.mark_non_differentiable(safe)
        return log_z.to(inputs[0].dtype), safe

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: None) -> tuple[Tensor | None, ...]:
        inputs, (safe, marginals, counts) = ctx.saved_tensors[:5], ctx.saved_tensors[5:]
        if torch.is_grad_enabled():  # the gradient is itself to be differentiated
            emissions, transitions, start, end, lengths = inputs
            total = in_log_domain(emissions[safe], transitions, start, end, lengths[safe])
            again = torch.autograd.grad(
                total, inputs[:4], gradient[safe], create_graph=True, allow_unused=True
            )
            return (*again, None)
        last = (inputs[4] - 1).clamp(min=0)
        ended = marginals[torch.arange(len(last), device=last.device), last]
        moved = (gradient @ counts.flatten(1)).view(counts.shape[1:])
        return (
            marginals * gradient[:, None, None],
            moved,
            gradient @ marginals[:, 0],
            gradient @ ended,
            None,
        )


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
    total, safe = _LogPartition.apply(*scores, lengths)  # type: ignore[no-untyped-call]
    if bool(safe.all()):
        return total
    others = ~safe
    exact = in_log_domain(emissions[others], transitions, start, end, lengths[others])
    return total.index_put((others.nonzero().squeeze(1),), exact.to(total.dtype))


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
