"""The CTC loss: minus the log of the summed probability of all paths that spell the target."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from anaphora.native.cuda import KINDS, Kernel, serves
from anaphora.native.following import following
from anaphora.native.fused import Backward, fused
from anaphora.ops.targets import Given, Lengths, Targets, checked_kind, frames_needed, placed, refuse

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
        from anaphora.ops.lattices import ctc_rows

        gradient = self.gradient[rows]
        losses = self.losses[rows]
        ctc_rows(
            self.p[rows], self.frames[rows], self.labels[rows], self.sizes[rows], self.blank, losses, gradient
        )
        for row in np.flatnonzero(np.isnan(losses)):
            self._in_logarithms(rows.start + int(row))

    def _in_logarithms(self, row: int) -> None:
        """One row again, where probabilities became too small to be added as they are."""
        from anaphora.ops.lattices import ctc_row_log

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


# ----------------------------------------------------------------------
# The same by kernels of an NVIDIA GPU.
def can_fuse(scores: Tensor, targets: Targets) -> bool:
    """Whether the kernels serve these scores and targets."""

    if not serves(scores) or not scores.shape[:2].numel() or scores.dtype not in TYPES:
        return False
    shape = getattr(targets, "shape", None)
    longest = max([0, *map(len, targets)]) if shape is None else shape[-1] if shape else 0
    return longest <= MOST_LABELS


def fused_loss(scores: Tensor, given: Given, normalized: bool) -> Tensor:
    """The loss after its reduction."""
    labels, frames, sizes, checked = placed(scores, given)
    waits = not checked or given.impossible == "raise"
    found: Tensor = _fused_losses(
        scores, labels, frames, sizes, given=given, normalized=normalized, waits=waits
    )
    return found


def _fused_forward(
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

    scores = scores.contiguous()
    job = Job(scores, labels, frames, sizes, given.blank, given.reduction == "mean", normalized)
    losses, reported, memory = sums(job)
    value = losses if given.reduction == "none" else losses.sum()
    lost = given.lost(reported) if waits else []
    if lost and given.impossible == "raise":
        places, lengths, counts = given.checked()
        raise refuse(given.name, lost, lengths, places, counts)
    return value, (scores, memory)


def _fused_backward(
    back: Backward, *, given: Given, normalized: bool, waits: bool
) -> tuple[Tensor | None, ...]:
    kept, tensors, grads, _ = back

    (scores, memory), (_, labels, frames, sizes) = kept, tensors
    job = Job(scores, labels, frames, sizes, given.blank, given.reduction == "mean", normalized)
    return gradient(job, memory, grads[0]), None, None, None


def _fused_by_torch(
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


_fused_losses = fused(_fused_forward, _fused_backward, _fused_by_torch)

# ----------------------------------------------------------------------
# The CTC loss and its gradient on an NVIDIA GPU in three kernels, with sums in float64; see `anaphora.ops.lattices`.
#
# `ctc_frames` takes the log of the sum of each frame, `ctc_sums` sums over paths, forwards and backwards at once, and `ctc_gradient` goes
# over the scores once more. As in `anaphora.ops.transducer_loss` the kernels check lengths and symbols and report.
TYPES = {**KINDS, torch.float64: 3}
"""Types of scores by what ``KIND`` is in a source."""
MOST_LABELS = 1023
"""Symbols of a target: each has a thread, and the last blank another."""
_WARPS = 8


def _kernel(part: str, threads: int) -> Kernel:
    here = Path(__file__).parent / "csrc"
    files = (here / "rows.cu", here / "ctc_common.cu", here / f"ctc_{part}.cu")
    return Kernel("".join(file.read_text(encoding="utf-8") for file in files), f"ctc_{part}", threads=threads)


_frames, _gradient = _kernel("frames", 32 * _WARPS), _kernel("gradient", 32 * _WARPS)
_sums = _kernel("sums", MOST_LABELS + 1)


class Job(NamedTuple):
    """Scores ``(B, T, V)`` on a GPU, with labels ``(B, U)``, frames and sizes ``(B,)``, which are int64 on the same GPU; all are contiguous.
    Frames and sizes may be None, where all rows are full. ``mean``: each loss is divided by B · max(U_b, 1); ``normalized``: the scores
    are log p."""

    scores: Tensor
    labels: Tensor
    frames: Tensor | None
    sizes: Tensor | None
    blank: int
    mean: bool
    normalized: bool

    @property
    def numbers(self) -> tuple[int, ...]:
        """What all kernels are given."""
        rows, time, symbols = self.scores.shape
        return rows, time, self.labels.shape[1], symbols, self.blank, int(self.mean), int(self.normalized)

    @property
    def tasks(self) -> int:
        """A warp for each frame."""
        return -(-self.scores.shape[0] * self.scores.shape[1] // _WARPS)

    def places(self, memory: Tensor) -> tuple[int, ...]:
        """Addresses of the logs of sums ``(B, T)``, α and β ``(B, T, U + 1, 2)``, log p ``(B,)`` and where a symbol comes next ``(B, U)``."""
        rows, time, size = *self.scores.shape[:2], self.labels.shape[1]
        alpha, states = memory.data_ptr(), 16 * rows * time * (size + 1)
        log_p = alpha + 2 * states
        total = log_p + 8 * rows
        return total, alpha, alpha + states, log_p, total + 8 * rows * time


def sums(job: Job) -> tuple[Tensor, Tensor, Tensor]:
    """Losses ``(B,)``, zero where no path spells the target; status ``(B,)``, see `anaphora.ops.targets`; and what `gradient`
    needs. Losses and status are float64 of such scores and float32 of others."""
    scores, labels, frames, sizes, *_ = job
    rows, time, size = *scores.shape[:2], labels.shape[1]
    words = rows * (4 * time * (size + 1) + 1 + time + (size + 1) // 2)
    memory = scores.new_empty(words, dtype=torch.float64)
    losses, status = scores.new_empty(
        (2, rows), dtype=torch.promote_types(scores.dtype, torch.float32)
    ).unbind()
    total, *rest = job.places(memory)
    kind, numbers = TYPES[scores.dtype], job.numbers
    if not job.normalized:
        _frames.run(scores, job.tasks, (scores, frames, sizes, total), numbers, kind)
    pointers = (scores, labels, frames, sizes, total, *rest, losses, status)
    _sums.run(scores, 2 * rows, pointers, numbers, kind, -(-(size + 1) // 32) * 32)
    return losses, status, memory


def gradient(job: Job, memory: Tensor, upstream: Tensor) -> Tensor:
    """``(B, T, V)`` of Σ_b upstream_b · losses_b; ``upstream`` is ``(B,)`` or one number for all, of the type of losses."""
    found = torch.empty_like(job.scores)
    given = (*job[:4], *job.places(memory), upstream.contiguous(), found)
    _gradient.run(job.scores, job.tasks, given, (*job.numbers, upstream.dim()), TYPES[job.scores.dtype])
    return found


# ----------------------------------------------------------------------
# The CTC recursion in torch operations, a frame at a time in logarithms: differentiable any number of times, on any device.
#
# The states of a target y₁ … y_U are ∅, y₁, ∅, …, y_U, ∅. Each stays or goes on to the next one, and from one symbol to a different one
# the blank between them may be left out:
#
#     α_t(s) = log p_t(s) + log(e^{α_{t−1}(s)} + e^{α_{t−1}(s−1)} + [s may be entered from s − 2] e^{α_{t−1}(s−2)})
NOTHING = -1e30
"""A logarithm of 0 whose gradient is a number."""


def log_likelihoods(
    scores: Tensor,
    labels: Tensor,
    frames: Tensor | None,
    sizes: Tensor | None,
    *,
    blank: int,
    normalized: bool,
) -> tuple[Tensor, Tensor]:
    """Return log p(y | x) ``(batch,)`` in float64, and which targets no path spells, ``(batch,)``, whose log p has no meaning.

    scores ``(batch, time, symbols)``: logits, or log p if ``normalized``; labels ``(batch, longest)``; frames and sizes ``(batch,)``, None
    where all rows are full.
    """
    rows, time, _ = scores.shape
    device = scores.device
    labels = labels.to(device)
    frames = torch.full((rows,), time, device=device) if frames is None else frames.to(device)
    sizes = torch.full((rows,), labels.shape[1], device=device) if sizes is None else sizes.to(device)
    real = torch.arange(time, device=device) < frames[:, None]
    log_p = torch.where(real[..., None], scores.double(), 0.0)  # padding may be NaN
    log_p = log_p if normalized else log_p.log_softmax(-1)
    symbols = F.pad(torch.stack((torch.full_like(labels, blank), labels), -1).flatten(1), (0, 1), value=blank)
    skips = (symbols != blank) & (symbols != F.pad(symbols, (2, 0), value=blank)[:, :-2])
    p = log_p.gather(2, symbols[:, None].expand(-1, time, -1)).clamp(min=NOTHING)
    alpha = F.pad(p.new_zeros(rows, 1), (0, symbols.shape[1] - 1), value=NOTHING)
    for t, now in enumerate(p.unbind(1)):
        before = F.pad(alpha, (2, 0), value=NOTHING)
        ways = (alpha, before[:, 1:-1], torch.where(skips, before[:, :-2], NOTHING))
        alpha = torch.where((t < frames)[:, None], torch.stack(ways).logsumexp(0) + now, alpha)
    last = alpha.gather(1, 2 * sizes[:, None])
    symbol = alpha.gather(1, (2 * sizes[:, None] - 1).clamp(min=0))
    total = torch.cat((last, torch.where(sizes[:, None] > 0, symbol, NOTHING)), 1).logsumexp(1)
    return total, total <= NOTHING / 2
