"""The transducer loss by kernels of an NVIDIA GPU, see `anaphora.kernels.transducer.loss_gpu`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.native.cuda import serves
from anaphora.search.ctc._on_gpu import Given, placed
from anaphora.search.transducer._refused import check_places, refuse_lost


def can_fuse(logits: Tensor) -> bool:
    """Whether the kernels serve these logits."""
    from anaphora.kernels.transducer.loss_gpu import MOST_NODES, TYPES

    fits = 0 < logits.shape[:3].numel() <= MOST_NODES and logits.dtype in TYPES
    return fits and serves(logits)


def fused_loss(logits: Tensor, given: Given) -> Tensor:
    """The loss after its reduction."""
    labels, frames, sizes, checked = placed(logits, given)
    check_places(labels.shape[1], logits.shape[2])
    waits = not checked or given.impossible == "raise"
    found: Tensor = _Loss.apply(logits, labels, frames, sizes, given, waits)  # type: ignore[no-untyped-call]
    return found


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        labels: Tensor,
        frames: Tensor | None,
        sizes: Tensor | None,
        given: Given,
        waits: bool,
    ) -> Tensor:
        from anaphora.kernels.transducer.loss_gpu import Job, sums

        logits = logits.contiguous()
        ctx.options = (given.blank, given.reduction == "mean")
        losses, reported, memory = sums(Job(logits, labels, frames, sizes, *ctx.options))
        value = losses if given.reduction == "none" else losses.sum()
        lost = given.lost(reported) if waits else []
        if lost and given.impossible == "raise":
            refuse_lost(lost[0], given.checked()[1])
        ctx.save_for_backward(logits, labels, frames, sizes, memory)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from anaphora.kernels.transducer.loss_gpu import Job, gradient

        *given, memory = ctx.saved_tensors  # raises where one was changed in between
        return (gradient(Job(*given, *ctx.options), memory, upstream), *(None,) * 5)
