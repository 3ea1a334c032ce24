"""The transducer loss by kernels of an NVIDIA GPU, see `anaphora.ops.transducer.loss_gpu`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.native.cuda import serves
from anaphora.native.fused import Backward, fused
from anaphora.ops.transducer.diagonals import log_likelihoods
from anaphora.search.ctc._on_gpu import Given, placed
from anaphora.search.transducer._refused import check_places, refuse_lost


def can_fuse(logits: Tensor) -> bool:
    """Whether the kernels serve these logits."""
    from anaphora.ops.transducer.loss_gpu import MOST_NODES, TYPES

    fits = 0 < logits.shape[:3].numel() <= MOST_NODES and logits.dtype in TYPES
    return fits and serves(logits)


def fused_loss(logits: Tensor, given: Given) -> Tensor:
    """The loss after its reduction."""
    labels, frames, sizes, checked = placed(logits, given)
    check_places(labels.shape[1], logits.shape[2])
    waits = not checked or given.impossible == "raise"
    found: Tensor = _loss(logits, labels, frames, sizes, given=given, waits=waits)
    return found


def _forward(
    keep: bool,
    logits: Tensor,
    labels: Tensor,
    frames: Tensor | None,
    sizes: Tensor | None,
    *,
    given: Given,
    waits: bool,
) -> tuple[Tensor, Sequence[Tensor]]:
    from anaphora.ops.transducer.loss_gpu import Job, sums

    logits = logits.contiguous()
    losses, reported, memory = sums(
        Job(logits, labels, frames, sizes, given.blank, given.reduction == "mean")
    )
    value = losses if given.reduction == "none" else losses.sum()
    lost = given.lost(reported) if waits else []
    if lost and given.impossible == "raise":
        refuse_lost(lost[0], given.checked()[1])
    return value, (logits, memory)


def _backward(back: Backward, *, given: Given, waits: bool) -> tuple[Tensor | None, ...]:
    kept, tensors, grads, _ = back
    from anaphora.ops.transducer.loss_gpu import Job, gradient

    (logits, memory), (_, labels, frames, sizes) = kept, tensors
    job = Job(logits, labels, frames, sizes, given.blank, given.reduction == "mean")
    return gradient(job, memory, grads[0]), None, None, None


def _by_torch(
    logits: Tensor,
    labels: Tensor,
    frames: Tensor | None,
    sizes: Tensor | None,
    *,
    given: Given,
    waits: bool,
) -> Tensor:
    log_p, lost = log_likelihoods(logits, labels, frames, sizes, blank=given.blank)
    return given.reduced(
        torch.where(lost, 0.0, -log_p).to(torch.promote_types(logits.dtype, torch.float32)), sizes
    )


_loss = fused(_forward, _backward, _by_torch)
