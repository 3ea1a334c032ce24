"""log Z with the fast gradient where it is safe."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.kernels.crf.scaled import forward_backward, highest_if_safe


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, highest: Tensor, *inputs: Tensor) -> Tensor:
        emissions, transitions, start, end, lengths = inputs
        sums = forward_backward(emissions, transitions, start, end, lengths, highest)
        found = (sums.marginals, sums.transitions, sums.start, sums.end)
        ctx.save_for_backward(*inputs, *(x.to(emissions.dtype) for x in found))
        return sums.log_z.to(emissions.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, (marginals, transitions, start, end) = ctx.saved_tensors[:5], ctx.saved_tensors[5:]
        if torch.is_grad_enabled():  # the gradient is itself to be differentiated
            total = exact_log_partition(*inputs)
            again = torch.autograd.grad(total, inputs[:4], gradient, create_graph=True, allow_unused=True)
            return (None, *again, None)
        counts = (gradient @ transitions.flatten(1)).view(transitions.shape[1:])
        return (None, marginals * gradient[:, None, None], counts, gradient @ start, gradient @ end, None)


def log_partition(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> Tensor:
    """log Z ``(batch,)`` of each chain, differentiable; scores may be −inf, which makes it slower."""
    if not emissions.shape[0]:
        return emissions.sum((1, 2))
    highest = highest_if_safe(emissions, transitions, start, end, lengths)
    if highest is None:
        return exact_log_partition(emissions, transitions, start, end, lengths)
    scores = (emissions, transitions.to(emissions.dtype), start.to(emissions.dtype), end.to(emissions.dtype))
    total: Tensor = _LogPartition.apply(highest, *scores, lengths)  # type: ignore[no-untyped-call]
    return total


def exact_log_partition(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> Tensor:
    """log Z ``(batch,)`` by the forward recursion in the log domain: slow, differentiable any number of times, right
    for any scores, −inf included.

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
