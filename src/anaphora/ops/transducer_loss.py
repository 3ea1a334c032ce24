"""The transducer loss: minus the log of the summed probability of all alignments that write the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from anaphora.native.cuda import KINDS, Kernel, serves
from anaphora.native.following import following
from anaphora.native.fused import Backward, fused
from anaphora.ops import transducer_sums
from anaphora.ops.targets import Given, Lengths, Targets, placed
from anaphora.ops.transducer_sums import check_places, log_likelihoods, refuse_lost


def transducer_loss(
    logits: Tensor,
    targets: Targets,
    logit_lengths: Lengths = None,
    target_lengths: Lengths = None,
    *,
    blank: int = 0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    impossible: Literal["raise", "zero"] = "raise",
) -> Tensor:
    """−log p(y | x) of a transducer (Graves 2012), summed over all alignments, with its gradient.

    At frame t, u symbols of the target being written, the model either writes symbol u + 1 and stays at the frame, or says the
    blank and goes on to the next; after the last frame's blank it has ended:

        p(y | x) = Σ_alignments Π p(step | t, u),      ∂(−log p)/∂z_tu(k) = γ_tu p_tu(k) − [k = blank] γ^∅_tu − [k = y_{u+1}] γ^y_tu

    where γ^∅_tu and γ^y_tu are the shares of alignments, by probability, that leave (t, u) by the blank and by the symbol, and γ_tu
    is their sum.

    logits: ``(batch, time, longest + 1, symbols)``; p_tu = softmax(logits[t, u]).
    targets: ``(batch, longest)`` with ``target_lengths``, or a list of lists of symbols, without blanks.
    logit_lengths: ``(batch,)``, the real frames of each row; all by default.
    reduction: "none" gives ``(batch,)``, "sum" their sum, "mean" (1/B) Σ_b loss_b / max(U_b, 1), as `ctc_loss`.
    impossible: a row without frames, or whose alignments all have probability 0, raises `DataError` with its number, or with
        "zero" adds neither loss nor gradient.

    Sums over alignments are in float64: on the CPU in a compiled kernel, on NVIDIA GPUs in kernels that make the gradient as well,
    elsewhere by torch operations. A gradient that is differentiated again is that of torch operations.

    >>> round(float(transducer_loss(torch.zeros(1, 2, 2, 3), [[1]])), 4)    # two alignments of three steps, each (1/3)³
    2.6027
    """
    if reduction not in ("mean", "sum", "none") or impossible not in ("raise", "zero"):
        raise ValueError(
            f"transducer_loss: reduction is mean, sum or none, impossible is raise or zero; got {reduction}, {impossible}."
        )
    if logits.dim() != 4 or not logits.is_floating_point():
        raise ValueError(
            "transducer_loss: logits must be floats (batch, time, longest + 1, symbols), "
            f"got {tuple(logits.shape)} of {logits.dtype}."
        )
    rows, time, places, symbols = logits.shape
    if not 0 <= blank < symbols:
        raise ValueError(f"transducer_loss: blank={blank} must be one of the {symbols} symbols.")
    lengths = (logit_lengths, target_lengths)
    given = Given("transducer_loss", targets, *lengths, rows, time, symbols, blank, reduction, impossible)
    if can_fuse(logits) and following(logits) is None:
        return fused_loss(logits, given)
    labels, frames, sizes = given.checked()
    check_places(labels.shape[1], places)
    function = _native_losses if transducer_sums.library.ready(logits) and logits.numel() else _losses
    losses: Tensor = function(logits, labels, frames, sizes, blank=blank, impossible=impossible)
    return given.reduced(losses, sizes)


def _forward(
    keep: bool, logits: Tensor, labels: Tensor, frames: Tensor, sizes: Tensor, *, blank: int, impossible: str
) -> tuple[Tensor, Sequence[Any]]:
    """By torch operations around `lattice`."""
    symbols = torch.nn.functional.pad(labels, (0, 1), value=blank).to(logits.device)  # (B, U + 1)
    symbols = symbols[:, None, :, None].expand(*logits.shape[:3], 1)
    wide = torch.promote_types(logits.dtype, torch.float32)
    of_symbols = logits.log_softmax(-1, dtype=wide)  # (B, T, U + 1, V)
    on_blank = of_symbols[..., blank].double()
    on_label = of_symbols.gather(3, symbols)[..., 0].double()
    alpha, beta = lattice(on_blank, on_label, frames, sizes)
    log_p = beta[:, 0, 0] if logits.shape[1] else beta.new_full((len(logits),), -torch.inf)
    lost = (log_p == -torch.inf).nonzero().flatten().tolist()
    if lost and impossible == "raise":
        refuse_lost(lost[0], frames)
    log_p = log_p.masked_fill(log_p == -torch.inf, torch.inf)  # exp(−∞ − ∞) = 0: no gradient
    by_blank, by_label = _posteriors(alpha, beta, on_blank, on_label, log_p, frames, sizes)
    losses = torch.where(log_p == torch.inf, 0.0, -log_p).to(wide)
    return losses, (of_symbols, symbols, by_blank.to(wide), by_label.to(wide))


def _backward(back: Backward, *, blank: int, impossible: str) -> tuple[Tensor | None, ...]:
    kept, tensors, grads, _ = back
    of_symbols, symbols, *shares = kept
    logits, _, frames, sizes = tensors
    by_blank, by_label = (g * grads[0][:, None, None] for g in shares)
    gradient = of_symbols.exp().mul_((by_blank + by_label)[..., None])
    gradient[..., blank] -= by_blank
    gradient.scatter_add_(3, symbols, -by_label[..., None])
    for row, time, size in zip(
        gradient, frames.tolist(), sizes.tolist(), strict=True
    ):  # padding may hold NaN
        row[time:] = 0
        row[:, size + 1 :] = 0
    return gradient.to(logits.dtype), None, None, None


def _native_forward(
    keep: bool, logits: Tensor, labels: Tensor, frames: Tensor, sizes: Tensor, *, blank: int, impossible: str
) -> tuple[Tensor, Sequence[Any]]:
    """See `anaphora.ops.transducer_sums`."""
    job = transducer_sums.Job(logits.detach().contiguous(), labels.contiguous(), frames, sizes, blank)
    found = transducer_sums.forward(job)
    lost = found.log_p == -torch.inf
    if impossible == "raise" and bool(lost.any()):
        refuse_lost(int(lost.nonzero()[0]), frames)
    return (-found.log_p).masked_fill_(lost, 0.0).to(logits.dtype), found


def _native_backward(back: Backward, *, blank: int, impossible: str) -> tuple[Tensor | None, ...]:
    kept, tensors, grads, _ = back
    logits, labels, frames, sizes = tensors
    job = transducer_sums.Job(logits.contiguous(), labels.contiguous(), frames, sizes, blank)
    return transducer_sums.gradient(job, transducer_sums.Found(*kept), grads[0]), None, None, None


def _by_torch(
    logits: Tensor, labels: Tensor, frames: Tensor, sizes: Tensor, *, blank: int, impossible: str
) -> Tensor:
    log_p, lost = log_likelihoods(logits, labels, frames, sizes, blank=blank)
    if impossible == "raise" and bool(lost.any()):
        refuse_lost(int(lost.nonzero()[0]), frames)
    return torch.where(lost, 0.0, -log_p).to(torch.promote_types(logits.dtype, torch.float32))


_losses = fused(_forward, _backward, _by_torch)
_native_losses = fused(_native_forward, _native_backward, _by_torch)


@torch.no_grad()
def transducer_posteriors(logits: Tensor, target: Sequence[int], *, blank: int = 0) -> tuple[Tensor, Tensor]:
    """Of one input, logits ``(time, U + 1, symbols)`` and a target of U symbols: γ ``(time, U)``, the share of alignments, by
    probability, that write symbol u at frame t (each symbol's shares sum to one); and log p ``(time, U)`` of writing it there."""
    log_p = logits.double().log_softmax(-1)
    time, size = log_p.shape[0], len(target)
    following = torch.tensor([*target, blank], device=logits.device).expand(time, -1)
    on_blank, on_label = log_p[..., blank], log_p.gather(2, following[..., None])[..., 0]
    nodes = (on_blank[None].contiguous(), on_label[None].contiguous())
    counts = (torch.tensor([time]), torch.tensor([size]))
    alpha, beta = lattice(*nodes, *counts)
    _, by_label = _posteriors(alpha, beta, *nodes, beta[:, 0, 0], *counts)
    return by_label[0, :, :size], on_label[:, :size]


def _posteriors(
    alpha: Tensor,
    beta: Tensor,
    on_blank: Tensor,
    on_label: Tensor,
    log_p: Tensor,
    frames: Tensor,
    sizes: Tensor,
) -> tuple[Tensor, Tensor]:
    """γ^∅ and γ^y ``(B, T, U + 1)``."""
    after = beta.new_full((1,), -torch.inf).expand_as(beta[:, :1])
    later = torch.cat((beta[:, 1:], after), 1)  # β(t + 1, u)
    real = (frames > 0).nonzero().flatten()
    later[real, (frames - 1)[real], sizes[real]] = 0.0  # the last blank ends the alignment
    longer = torch.cat((beta[:, :, 1:], beta.new_full((1,), -torch.inf).expand_as(beta[:, :, :1])), 2)
    p = log_p[:, None, None]
    by_blank, by_label = (alpha + on_blank + later - p).exp(), (alpha + on_label + longer - p).exp()
    # −∞ + ∞ where logits are infinite: nothing passes there
    return by_blank.nan_to_num_(0.0), by_label.nan_to_num_(0.0)


def lattice(on_blank: Tensor, on_label: Tensor, frames: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """α and β ``(B, T, U + 1)`` in float64, see `anaphora.ops.lattices`, by what the device has."""
    if on_blank.numel() and on_blank.device.type == "cpu":
        from anaphora.ops.lattices import transducer_rows

        alpha, beta = torch.empty_like(on_blank), torch.empty_like(on_blank)
        arrays = (on_blank, on_label, frames, sizes, alpha, beta)
        transducer_rows(*(each.contiguous().numpy() for each in arrays))
        return alpha, beta
    return lattice_torch(on_blank, on_label, frames, sizes)


def lattice_torch(on_blank: Tensor, on_label: Tensor, frames: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """The same by torch operations, a diagonal t + u at a time."""
    time, places = on_blank.shape[1:]
    none = on_blank.new_full((), -torch.inf)
    alpha, beta = torch.full_like(on_blank, -torch.inf), torch.full_like(on_blank, -torch.inf)
    if not on_blank.numel():
        return alpha, beta
    t = torch.arange(time)[:, None]
    u = torch.arange(places)
    inside = ((t < frames[:, None, None]) & (u <= sizes[:, None, None])).to(on_blank.device)
    on_blank, on_label = (each.masked_fill(~inside, -torch.inf) for each in (on_blank, on_label))
    end = ((t == frames[:, None, None] - 1) & (u == sizes[:, None, None])).to(on_blank.device)
    diagonals = [_diagonal(n, time, places, on_blank.device) for n in range(time + places - 1)]
    alpha[:, 0, 0] = 0.0
    for at, us in diagonals[1:]:
        by_blank = torch.where(at > 0, (alpha + on_blank)[:, at - 1, us], none)
        by_label = torch.where(us > 0, (alpha + on_label)[:, at, us - 1], none)
        alpha[:, at, us] = torch.logaddexp(by_blank, by_label)
    alpha = torch.where(inside, alpha, none)
    for at, us in reversed(diagonals):
        below, beside = (at + 1).clamp(max=time - 1), (us + 1).clamp(max=places - 1)
        by_blank = torch.where(at + 1 < time, beta[:, below, us] + on_blank[:, at, us], none)
        by_label = torch.where(us + 1 < places, beta[:, at, beside] + on_label[:, at, us], none)
        found = torch.logaddexp(by_blank, by_label)
        beta[:, at, us] = torch.where(end[:, at, us], on_blank[:, at, us], found)
    return alpha, torch.where(inside, beta, none)


def _diagonal(n: int, time: int, places: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The nodes (t, u) with t + u = n."""
    us = torch.arange(max(0, n - time + 1), min(places - 1, n) + 1, device=device)
    return n - us, us


# ----------------------------------------------------------------------
# The same by kernels of an NVIDIA GPU.
def can_fuse(logits: Tensor) -> bool:
    """Whether the kernels serve these logits."""

    fits = 0 < logits.shape[:3].numel() <= MOST_NODES and logits.dtype in TYPES
    return fits and serves(logits)


def fused_loss(logits: Tensor, given: Given) -> Tensor:
    """The loss after its reduction."""
    labels, frames, sizes, checked = placed(logits, given)
    check_places(labels.shape[1], logits.shape[2])
    waits = not checked or given.impossible == "raise"
    found: Tensor = _fused_losses(logits, labels, frames, sizes, given=given, waits=waits)
    return found


def _fused_forward(
    keep: bool,
    logits: Tensor,
    labels: Tensor,
    frames: Tensor | None,
    sizes: Tensor | None,
    *,
    given: Given,
    waits: bool,
) -> tuple[Tensor, Sequence[Tensor]]:

    logits = logits.contiguous()
    losses, reported, memory = sums(
        Job(logits, labels, frames, sizes, given.blank, given.reduction == "mean")
    )
    value = losses if given.reduction == "none" else losses.sum()
    lost = given.lost(reported) if waits else []
    if lost and given.impossible == "raise":
        refuse_lost(lost[0], given.checked()[1])
    return value, (logits, memory)


def _fused_backward(back: Backward, *, given: Given, waits: bool) -> tuple[Tensor | None, ...]:
    kept, tensors, grads, _ = back

    (logits, memory), (_, labels, frames, sizes) = kept, tensors
    job = Job(logits, labels, frames, sizes, given.blank, given.reduction == "mean")
    return gradient(job, memory, grads[0]), None, None, None


def _fused_by_torch(
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


_fused_losses = fused(_fused_forward, _fused_backward, _fused_by_torch)

# ----------------------------------------------------------------------
# The transducer loss and its gradient on an NVIDIA GPU in three kernels, see `anaphora.ops.lattices` for the formulas.
#
# `transducer_nodes` takes the softmax of each node and keeps three numbers of it, `transducer_sums` sums over alignments, and
# `transducer_gradient` goes over the logits once more. A small lattice takes the GPU less time than the host needs to start the
# kernels, so the host does little: one allocation, no copy of what lies on the GPU already, and no check of it. The kernels check
# lengths and symbols, never read outside of their arrays, and report.
TYPES = {**KINDS, torch.float64: 3}
"""Types of logits by what ``KIND`` is in a source."""
MOST_NODES = 2**31 - 1

_WARPS = 8
_MOST_THREADS = 1024


def _kernel(part: str, threads: int) -> Kernel:
    here = Path(__file__).parent / "csrc"
    files = (here / "rows.cu", here / "transducer_common.cu", here / f"transducer_{part}.cu")
    return Kernel(
        "".join(file.read_text(encoding="utf-8") for file in files), f"transducer_{part}", threads=threads
    )


_nodes, _gradient = _kernel("nodes", 32 * _WARPS), _kernel("gradient", 32 * _WARPS)
_sums = _kernel("sums", _MOST_THREADS)


class Job(NamedTuple):
    """Logits ``(B, T, U + 1, V)`` on a GPU, with labels ``(B, U)``, frames and sizes ``(B,)``, which are int64 on the same GPU; all are
    contiguous. Frames and sizes may be None, where all rows are full. ``mean``: each loss is divided by B · max(U_b, 1)."""

    logits: Tensor
    labels: Tensor
    frames: Tensor | None
    sizes: Tensor | None
    blank: int
    mean: bool

    @property
    def numbers(self) -> tuple[int, ...]:
        """What all kernels are given."""
        return (*self.logits.shape, self.blank, int(self.mean))

    @property
    def tasks(self) -> int:
        """A warp for each node."""
        return -(-self.logits.shape[:3].numel() // _WARPS)

    def places(self, memory: Tensor) -> tuple[int, int, int, int]:
        """Addresses of the steps ``(B, T + U, U + 1, 2)``, α and β ``(B, T + U, U + 1)``, and of the logs of sums ``(B, T, U + 1)``."""
        rows, time, width, _ = self.logits.shape
        size, first = 8 * rows * (time + width - 1) * width, memory.data_ptr()
        return first, first + 2 * size, first + 3 * size, first + 4 * size


def sums(job: Job) -> tuple[Tensor, Tensor, Tensor]:
    """Losses ``(B,)``, zero where there is no alignment; status ``(B,)``, see `anaphora.ops.targets`; and what `gradient`
    needs.

    Losses and status are float64 of such logits and float32 of others. The loss of a row that is WRONG has no meaning.
    """
    logits, labels, frames, sizes, *_ = job
    rows, time, width, _ = logits.shape
    memory = logits.new_empty(rows * width * (4 * (time + width - 1) + time), dtype=torch.float64)
    losses, status = logits.new_empty(
        (2, rows), dtype=torch.promote_types(logits.dtype, torch.float32)
    ).unbind()
    steps, alpha, beta, total = job.places(memory)
    kind, numbers = TYPES[logits.dtype], job.numbers
    _nodes.run(logits, job.tasks, (logits, labels, frames, sizes, total, steps), numbers, kind)
    threads = min(-(-width // 32) * 32, _MOST_THREADS)
    pointers = (labels, frames, sizes, steps, alpha, beta, losses, status)
    _sums.run(logits, 2 * rows, pointers, numbers, kind, threads)
    return losses, status, memory


def gradient(job: Job, memory: Tensor, upstream: Tensor) -> Tensor:
    """``(B, T, U + 1, V)`` of Σ_b upstream_b · losses_b; ``upstream`` is ``(B,)`` or one number for all, of the type of losses."""
    found = torch.empty_like(job.logits)
    steps, alpha, beta, total = job.places(memory)
    given = (*job[:4], total, steps, alpha, beta, upstream.contiguous(), found)
    _gradient.run(job.logits, job.tasks, given, (*job.numbers, upstream.dim()), TYPES[job.logits.dtype])
    return found
