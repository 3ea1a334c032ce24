"""The CTC loss: minus the log of the summed probability of all paths that spell the target."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from anaphora.native.following import following
from anaphora.native.fused import Backward, fused
from anaphora.ops.ctc.recursion import log_likelihoods
from anaphora.search.ctc._fused import can_fuse, fused_loss
from anaphora.search.ctc._inputs import (
    Lengths,
    Targets,
    checked_kind,
    frames_needed,
    refuse,
)
from anaphora.search.ctc._on_gpu import Given

_ELEMENTS = 2**22
"""Scores that are in float64 at the same time."""


def ctc_loss(
    logits: Tensor,
    targets: Targets,
    logit_lengths: Lengths = None,
    target_lengths: Lengths = None,
    *,
    blank: int = 0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    normalized: bool = False,
    impossible: Literal["raise", "zero"] = "raise",
) -> Tensor:
    """−log p(y | x), summed over all paths that collapse to y, with its gradient:

        p(y | x) = Σ_{π: collapse(π) = y} Π_t p_t(π_t),    ∂(−log p)/∂logits_t(k) = p_t(k) − γ_t(k)

    where γ_t(k) is the share of paths, by probability, that are at symbol k at frame t.

    logits: ``(batch, time, symbols)``, any real numbers; p = softmax(logits). With ``normalized=True`` they are
        log p itself and taken as they are; the gradient is then −γ. A softmax before that is differentiated as usual.
    targets: ``(batch, longest)`` with ``target_lengths``, or a list of lists of symbols, without blanks.
    logit_lengths: ``(batch,)``, the real frames of each row; all by default.
    reduction: "none" gives ``(batch,)``, "sum" their sum, "mean" (1/B) Σ_b loss_b / max(U_b, 1) as PyTorch does.
    impossible: a target that no path spells (more symbols, plus a blank between equal neighbours, than frames; or
        probability 0) raises `DataError` with its row, or with "zero" adds neither loss nor gradient.

    On the CPU all sums are in float64, and the gradient is exact for float32 input to about 1e-7; rows are shared out
    over `torch.get_num_threads()` threads, which changes no result. On NVIDIA GPUs sums are in float64 as well, in kernels of
    our own, up to targets of 1023 symbols; beyond that, and on other GPUs, PyTorch's kernel is used, in the type of the
    scores, with the gradient corrected for ``normalized=True``. A gradient that
    is differentiated again is that of torch operations.

    >>> loss = an.search.ctc_loss(torch.zeros(1, 2, 2), torch.tensor([[1]]), reduction="sum")
    >>> round(float((-loss).exp()), 3)  # three of four paths spell it
    0.75
    """
    if reduction not in ("mean", "sum", "none") or impossible not in ("raise", "zero"):
        raise ValueError(
            f"ctc_loss: reduction is mean, sum or none, impossible is raise or zero; got {reduction}, {impossible}."
        )
    logits = checked_kind("ctc_loss", logits, blank)
    rows, time, symbols = logits.shape
    lengths = (logit_lengths, target_lengths)
    given = Given("ctc_loss", targets, *lengths, rows, time, symbols, blank, reduction, impossible)
    if can_fuse(logits, targets) and following(logits) is None:
        return fused_loss(logits, given, normalized)
    options = {"blank": blank, "normalized": normalized, "impossible": impossible}
    labels, frames, sizes = given.checked()
    losses: Tensor = _losses(logits, labels, frames, sizes, **options)
    return given.reduced(losses, sizes)


def _forward(
    keep: bool,
    logits: Tensor,
    labels: Tensor,
    lengths: Tensor,
    sizes: Tensor,
    *,
    blank: int,
    normalized: bool,
    impossible: str,
) -> tuple[Tensor, Sequence[Tensor]]:
    possible = frames_needed(labels, sizes) <= lengths
    rows = _rows_torch if logits.device.type == "cuda" else _rows_cpu
    losses, gradient = rows(logits, labels, lengths, sizes, possible, blank, normalized, keep)
    lost = np.flatnonzero(np.isinf(losses.cpu().numpy())).tolist()
    if lost and impossible == "raise":
        raise refuse("ctc_loss", lost, lengths, labels, sizes)
    if lost:
        losses[lost] = 0.0
        if keep:
            gradient[lost] = 0.0
    return losses.to(logits.device, torch.promote_types(logits.dtype, torch.float32)), (gradient.to(logits),)


def _backward(back: Backward, **options: object) -> tuple[Tensor | None, ...]:
    kept, _, grads, _ = back
    (gradient,), (upstream,) = kept, grads
    return (gradient * upstream[:, None, None]).to(gradient.dtype), None, None, None


def _by_torch(
    logits: Tensor,
    labels: Tensor,
    lengths: Tensor,
    sizes: Tensor,
    *,
    blank: int,
    normalized: bool,
    impossible: str,
) -> Tensor:
    log_p, lost = log_likelihoods(logits, labels, lengths, sizes, blank=blank, normalized=normalized)
    if impossible == "raise" and bool(lost.any()):
        raise refuse("ctc_loss", lost.nonzero().flatten().tolist(), lengths, labels, sizes)
    return torch.where(lost, 0.0, -log_p).to(torch.promote_types(logits.dtype, torch.float32))


_losses = fused(_forward, _backward, _by_torch)


def _rows_cpu(
    logits: Tensor,
    labels: Tensor,
    lengths: Tensor,
    sizes: Tensor,
    possible: Tensor,
    blank: int,
    normalized: bool,
    wanted: bool,
) -> tuple[Tensor, Tensor]:
    """Losses ``(batch,)`` in float64, infinite where impossible, and their gradient if wanted, else nothing.

    Some rows at a time, so that the copies in float64 stay small, shared out over PyTorch's number of threads.
    """
    logits = logits.detach().cpu()
    threads = torch.get_num_threads()
    together = max(threads, _ELEMENTS // max(logits.shape[1] * logits.shape[2], 1))
    losses = logits.new_empty(len(logits), dtype=torch.float64)
    gradient = torch.zeros_like(logits) if wanted else logits.new_zeros(0)
    frames = torch.where(possible, lengths, 0)
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        run = map if pool is None else pool.map
        for first in range(0, len(logits), together):
            some = slice(first, first + together)
            job = _Job(logits[some], labels[some], frames[some], sizes[some], blank, normalized, wanted)
            share = -(-len(job.losses) // threads)
            list(run(job, (slice(at, at + share) for at in range(0, len(job.losses), share))))
            losses[some] = torch.from_numpy(job.losses)
            if wanted:
                gradient[some] = torch.from_numpy(job.gradient)
    return losses, gradient


class _Job:
    """Some rows of a batch as arrays; calling it with a slice of them fills in their losses and gradients."""

    def __init__(
        self,
        logits: Tensor,
        labels: Tensor,
        frames: Tensor,
        sizes: Tensor,
        blank: int,
        normalized: bool,
        wanted: bool,
    ):
        scores = logits.to(torch.float64)
        self.scores, self.normalized, self.blank, self.wanted = scores, normalized, blank, wanted
        self.p = (scores.exp() if normalized else scores.softmax(-1)).contiguous().numpy()
        self.labels, self.frames, self.sizes = labels.numpy(), frames.numpy(), sizes.numpy()
        self.losses = np.empty(len(self.p))
        self.gradient = np.zeros(self.p.shape if wanted else (0, 1, 1))
        if wanted and not normalized:  # the posteriors are taken off p
            for row, end in enumerate(self.frames):
                self.gradient[row, :end] = self.p[row, :end]

    def __call__(self, rows: slice) -> None:
        from anaphora.ops.ctc.loss import ctc_rows

        gradient = self.gradient[rows]
        losses = self.losses[rows]
        ctc_rows(
            self.p[rows], self.frames[rows], self.labels[rows], self.sizes[rows], self.blank, losses, gradient
        )
        for row in np.flatnonzero(np.isnan(losses)):
            self._in_logarithms(rows.start + int(row))

    def _in_logarithms(self, row: int) -> None:
        """One row again, where probabilities became too small to be added as they are."""
        from anaphora.ops.ctc.log_domain import ctc_row_log

        end = int(self.frames[row])
        real = self.scores[row, :end]
        log_p: NDArray[np.float64] = (real if self.normalized else real.log_softmax(-1)).contiguous().numpy()
        gradient = np.zeros_like(log_p) if self.normalized else np.exp(log_p)
        self.losses[row] = ctc_row_log(log_p, self.labels[row, : self.sizes[row]], self.blank, gradient)
        if self.wanted:
            self.gradient[row, :end] = gradient


def _rows_torch(
    logits: Tensor,
    labels: Tensor,
    lengths: Tensor,
    sizes: Tensor,
    possible: Tensor,
    blank: int,
    normalized: bool,
    wanted: bool,
) -> tuple[Tensor, Tensor]:
    """The same by PyTorch's kernel, in float32 or better.

    Its gradient is that of a log-softmax folded in, p − γ, whatever came before; so p is taken off again where the
    input is log p itself.
    """
    scores = logits.detach().to(torch.promote_types(logits.dtype, torch.float32))
    if not scores.shape[0] or not scores.shape[1]:
        losses = torch.where(possible, 0.0, torch.inf).to(scores)
        return losses, torch.zeros_like(scores)
    log_p = (scores if normalized else scores.log_softmax(-1)).requires_grad_(wanted)
    places = labels.to(scores.device)
    with torch.set_grad_enabled(wanted):
        losses = F.ctc_loss(
            log_p.transpose(0, 1), places, lengths, sizes, blank, reduction="none", zero_infinity=False
        )
    if not wanted:
        return losses, scores.new_zeros(0)
    (gradient,) = torch.autograd.grad(losses, log_p, torch.ones_like(losses))
    real = (torch.arange(scores.shape[1]) < lengths[:, None]).to(scores.device)
    if normalized:
        gradient = gradient - log_p.detach().exp()
    return losses.detach().clone(), gradient.masked_fill(~real[:, :, None], 0.0)
