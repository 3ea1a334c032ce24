"""The CTC loss by kernels of an NVIDIA GPU, see `anaphora.ops.ctc.loss_gpu`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.native.cuda import serves
from anaphora.native.fused import Backward, fused
from anaphora.ops.ctc.recursion import log_likelihoods
from anaphora.search.ctc._inputs import Targets, refuse
from anaphora.search.ctc._on_gpu import Given, placed


def can_fuse(scores: Tensor, targets: Targets) -> bool:
    """Whether the kernels serve these scores and targets."""
    from anaphora.ops.ctc.loss_gpu import MOST_LABELS, TYPES

    if not serves(scores) or not scores.shape[:2].numel() or scores.dtype not in TYPES:
        return False
    shape = getattr(targets, "shape", None)
    longest = max([0, *map(len, targets)]) if shape is None else shape[-1] if shape else 0
    return longest <= MOST_LABELS


def fused_loss(scores: Tensor, given: Given, normalized: bool) -> Tensor:
    """The loss after its reduction."""
    labels, frames, sizes, checked = placed(scores, given)
    waits = not checked or given.impossible == "raise"
    found: Tensor = _loss(scores, labels, frames, sizes, given=given, normalized=normalized, waits=waits)
    return found


def _forward(
    keep: bool,
    scores: Tensor,
    labels: Tensor,
    frames: Tensor | None,
    sizes: Tensor | None,
    *,
    given: Given,
    normalized: bool,
    waits: bool,
) -> tuple[Tensor, Sequence[Tensor]]:
    from anaphora.ops.ctc.loss_gpu import Job, sums

    scores = scores.contiguous()
    job = Job(scores, labels, frames, sizes, given.blank, given.reduction == "mean", normalized)
    losses, reported, memory = sums(job)
    value = losses if given.reduction == "none" else losses.sum()
    lost = given.lost(reported) if waits else []
    if lost and given.impossible == "raise":
        places, lengths, counts = given.checked()
        raise refuse(given.name, lost, lengths, places, counts)
    return value, (scores, memory)


def _backward(back: Backward, *, given: Given, normalized: bool, waits: bool) -> tuple[Tensor | None, ...]:
    kept, tensors, grads, _ = back
    from anaphora.ops.ctc.loss_gpu import Job, gradient

    (scores, memory), (_, labels, frames, sizes) = kept, tensors
    job = Job(scores, labels, frames, sizes, given.blank, given.reduction == "mean", normalized)
    return gradient(job, memory, grads[0]), None, None, None


def _by_torch(
    scores: Tensor,
    labels: Tensor,
    frames: Tensor | None,
    sizes: Tensor | None,
    *,
    given: Given,
    normalized: bool,
    waits: bool,
) -> Tensor:
    log_p, lost = log_likelihoods(scores, labels, frames, sizes, blank=given.blank, normalized=normalized)
    return given.reduced(
        torch.where(lost, 0.0, -log_p).to(torch.promote_types(scores.dtype, torch.float32)), sizes
    )


_loss = fused(_forward, _backward, _by_torch)
