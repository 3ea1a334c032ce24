"""The CTC loss by kernels of an NVIDIA GPU, see `anaphora.kernels.ctc.loss_gpu`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.native.cuda import serves
from anaphora.search.ctc._inputs import Targets, refuse
from anaphora.search.ctc._on_gpu import Given, placed


def can_fuse(scores: Tensor, targets: Targets) -> bool:
    """Whether the kernels serve these scores and targets."""
    from anaphora.kernels.ctc.loss_gpu import MOST_LABELS, TYPES

    if not serves(scores) or not scores.shape[:2].numel() or scores.dtype not in TYPES:
        return False
    shape = getattr(targets, "shape", None)
    longest = max([0, *map(len, targets)]) if shape is None else shape[-1] if shape else 0
    return longest <= MOST_LABELS


def fused_loss(scores: Tensor, given: Given, normalized: bool) -> Tensor:
    """The loss after its reduction."""
    labels, frames, sizes, checked = placed(scores, given)
    waits = not checked or given.impossible == "raise"
    found: Tensor = _Loss.apply(scores, labels, frames, sizes, given, normalized, waits)  # type: ignore[no-untyped-call]
    return found


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        labels: Tensor,
        frames: Tensor | None,
        sizes: Tensor | None,
        given: Given,
        normalized: bool,
        waits: bool,
    ) -> Tensor:
        from anaphora.kernels.ctc.loss_gpu import Job, sums

        scores = scores.contiguous()
        ctx.options = (given.blank, given.reduction == "mean", normalized)
        losses, reported, memory = sums(Job(scores, labels, frames, sizes, *ctx.options))
        value = losses if given.reduction == "none" else losses.sum()
        lost = given.lost(reported) if waits else []
        if lost and given.impossible == "raise":
            places, lengths, counts = given.checked()
            raise refuse(given.name, lost, lengths, places, counts)
        ctx.save_for_backward(scores, labels, frames, sizes, memory)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from anaphora.kernels.ctc.loss_gpu import Job, gradient

        *given, memory = ctx.saved_tensors  # raises where one was changed in between
        return (gradient(Job(*given, *ctx.options), memory, upstream), *(None,) * 6)
