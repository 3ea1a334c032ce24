"""The transducer loss by kernels of an NVIDIA GPU, see `anaphora.kernels.transducer.loss_gpu`.

What the caller has on the GPU stays there, unchecked: the kernels report a length or symbol that is out of range, and only then is it
copied to the host, where the checks that every caller gets name it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from anaphora.kernels.gpu.kernel import serves
from anaphora.search.ctc._inputs import Lengths, Targets, checked_lengths, checked_targets
from anaphora.search.transducer._refused import check_places, refuse_lost

NAME = "transducer_loss"


class Given(NamedTuple):
    """The arguments of `transducer_loss`, as they came."""

    targets: Targets
    logit_lengths: Lengths
    target_lengths: Lengths
    blank: int
    reduction: str
    impossible: str

    def checked(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Labels ``(batch, longest)``, frames and sizes ``(batch,)`` on the CPU; raises ValueError or `DataError`."""
        rows, time, places, symbols = logits.shape
        frames = checked_lengths(NAME, self.logit_lengths, rows, time)
        labels, sizes = checked_targets(NAME, self.targets, self.target_lengths, rows, symbols, self.blank)
        check_places(labels.shape[1], places)
        return labels, frames, sizes


class Counts(NamedTuple):
    """The same on the GPU, int64; None stands for full rows."""

    labels: Tensor
    frames: Tensor | None
    sizes: Tensor | None


def can_fuse(logits: Tensor) -> bool:
    """Whether the kernels serve these logits."""
    from anaphora.kernels.transducer.loss_gpu import MOST_NODES, TYPES

    fits = 0 < logits.shape[:3].numel() <= MOST_NODES and logits.dtype in TYPES
    return fits and serves(logits)


def fused_loss(logits: Tensor, given: Given) -> Tensor:
    """The loss after its reduction."""
    counts, all_checked = _placed(logits, given)
    found: Tensor = _Loss.apply(logits, *counts, given, all_checked)  # type: ignore[no-untyped-call]
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
        all_checked: bool,
    ) -> Tensor:
        from anaphora.kernels.transducer.loss_gpu import LOST, WRONG, Job, sums

        logits = logits.contiguous()
        ctx.options = (given.blank, given.reduction == "mean")
        losses, reported, memory = sums(Job(logits, labels, frames, sizes, *ctx.options))
        value = losses if given.reduction == "none" else losses.sum()
        if not all_checked or given.impossible == "raise":
            status = reported.tolist()  # the one wait for the GPU
            if WRONG in status:
                given.checked(logits)
                raise RuntimeError(f"{NAME}: the GPU found lengths or targets that changed while they were read.")
            if LOST in status and given.impossible == "raise":
                refuse_lost(status.index(LOST), given.checked(logits)[1])
        ctx.save_for_backward(logits, labels, frames, sizes, memory)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        from anaphora.kernels.transducer.loss_gpu import Job, gradient

        *given, memory = ctx.saved_tensors  # raises where one was changed in between
        return (gradient(Job(*given, *ctx.options), memory, upstream), *(None,) * 5)


def _placed(logits: Tensor, given: Given) -> tuple[Counts, bool]:
    """Targets and lengths on the GPU of the logits, and whether the host has checked all of them."""
    rows, time, places, symbols = logits.shape
    targets = given.targets
    if not _lies_there(targets, logits):
        labels, sizes = checked_targets(NAME, targets, given.target_lengths, rows, symbols, given.blank)
        check_places(labels.shape[1], places)
        if _lies_there(given.logit_lengths, logits) and given.logit_lengths.shape == (rows,):
            labels, sizes = _copied(logits, labels, sizes)
            return Counts(labels, _whole(given.logit_lengths), sizes), False
        frames = checked_lengths(NAME, given.logit_lengths, rows, time)
        return Counts(*_copied(logits, labels, frames, sizes)), True
    if targets.dim() != 2 or targets.shape[0] != rows or targets.shape[1] + 1 != places:
        given.checked(logits)  # raises
    lengths = [
        _length(logits, each, rows, most)
        for each, most in ((given.logit_lengths, time), (given.target_lengths, places - 1))
    ]
    return Counts(_whole(targets), *lengths), False


def _length(logits: Tensor, lengths: Lengths, rows: int, most: int) -> Tensor | None:
    if lengths is None:
        return None
    if _lies_there(lengths, logits) and lengths.shape == (rows,):
        return _whole(lengths)
    return _copied(logits, checked_lengths(NAME, lengths, rows, most))[0]


def _lies_there(given: Any, logits: Tensor) -> bool:
    return isinstance(given, Tensor) and given.device == logits.device


def _whole(given: Any) -> Tensor:
    numbers: Tensor = given.detach().to(torch.int64).contiguous()
    return numbers


def _copied(logits: Tensor, *numbers: Tensor) -> tuple[Tensor, ...]:
    """The same on the GPU, by one copy."""
    together = torch.cat([each.flatten() for each in numbers]).to(logits.device)
    return tuple(
        part.view(each.shape)
        for part, each in zip(together.split([each.numel() for each in numbers]), numbers, strict=True)
    )
