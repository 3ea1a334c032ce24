"""log Z with the fast gradient where it is safe."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.kernels.crf import exact
from anaphora.kernels.crf.scaled import forward_backward, is_safe


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        emissions, transitions, start, end, lengths = inputs
        sums = forward_backward(emissions, transitions, start, end, lengths)
        ctx.save_for_backward(*inputs, sums.marginals, sums.transitions, sums.start, sums.end)
        return sums.log_z.to(emissions.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, marginals, transitions, start, end = ctx.saved_tensors
        scores = inputs[:-1]
        if torch.is_grad_enabled():  # the gradient is itself to be differentiated
            total = exact.log_partition(*inputs)
            again = torch.autograd.grad(total, scores, gradient, create_graph=True, allow_unused=True)
            return (*again, None)
        g = gradient.to(marginals.dtype)
        found = (
            marginals * g[:, None, None],
            torch.einsum("b,bij->ij", g, transitions),
            g @ start,
            g @ end,
        )
        return (*(x.to(like.dtype) for x, like in zip(found, scores, strict=True)), None)


def log_partition(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> Tensor:
    """log Z ``(batch,)`` of each chain, differentiable; scores may be −inf, which makes it slower."""
    if is_safe(emissions, transitions, start, end, lengths):
        out: Tensor = _LogPartition.apply(emissions, transitions, start, end, lengths)  # type: ignore[no-untyped-call]
        return out
    return exact.log_partition(emissions, transitions, start, end, lengths)
