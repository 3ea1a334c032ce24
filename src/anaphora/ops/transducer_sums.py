"""The transducer loss and its gradient in C, for float32 on a CPU: `csrc/transducer.c`, where there is a compiler.

The softmax and the gradient go over the logits once each, with nothing of their size in between; by torch operations the same takes some
ten passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.errors import DataError
from anaphora.native.c import LANES, CLibrary, beside, check

library = CLibrary(
    "transducer",
    lambda double: LANES.read_text() + beside(__package__, "csrc/transducer.c"),
    (torch.float32,),
    no_memory="transducer_loss: there is no memory for the sums of one row; use shorter ones.",
)


class Found(NamedTuple):
    """log p(y | x) ``(B,)`` in float64, −∞ where there is no alignment; logs of sums ``(B, T, U + 1, 2)`` in two
    parts, and shares of alignments that
    leave each node by its blank and by its label ``(B, T, U + 1, 2)``."""

    log_p: Tensor
    sums: Tensor
    shares: Tensor


class Job(NamedTuple):
    """Logits ``(B, T, U + 1, V)``, float32 and contiguous; labels ``(B, U)``, frames and sizes ``(B,)``, all checked before."""

    logits: Tensor
    labels: Tensor
    frames: Tensor
    sizes: Tensor
    blank: int


def forward(job: Job) -> Found:
    """The sums over alignments. What is not real in `Found` has no meaning."""
    rows, time, places, _ = job.logits.shape
    check("transducer_loss: logits", job.logits, tuple(job.logits.shape), torch.float32)
    check("transducer_loss: labels", job.labels, (rows, places - 1), torch.int64)
    for name, counts in (("frames", job.frames), ("sizes", job.sizes)):
        check(f"transducer_loss: {name}", counts, (rows,), torch.int64)
    found = Found(
        job.logits.new_empty(rows, dtype=torch.float64),
        job.logits.new_empty(rows, time, places, 2),
        job.logits.new_empty(rows, time, places, 2),
    )
    _by_rows("transducer_forward", job, (*job[:4], *found))
    return found


def gradient(job: Job, found: Found, upstream: Tensor) -> Tensor:
    """``(B, T, U + 1, V)`` of Σ_b upstream_b · (−log p_b), with ``upstream`` ``(B,)``."""
    given = upstream.to(torch.float32).contiguous()
    check("transducer_loss: upstream", given, (len(job.logits),), torch.float32)
    to = torch.empty_like(job.logits)
    _by_rows("transducer_backward", job, (*job[:4], *found, given, to))
    return to


def _by_rows(name: str, job: Job, tensors: Sequence[Tensor]) -> None:
    """Rows are shared out over PyTorch's number of threads, which changes no result."""
    rows, time, places, symbols = job.logits.shape

    def run(first: int, end: int) -> None:
        library.call(torch.float32, name, (time, places, symbols, job.blank, first, end), tensors)

    threads = min(torch.get_num_threads(), rows)
    if threads > 1 and job.logits.numel() >= _WORTH_THREADS:
        with ThreadPoolExecutor(threads) as pool:  # C holds no lock of Python's
            list(pool.map(run, range(rows), range(1, rows + 1)))
    else:
        run(0, rows)


_WORTH_THREADS = 2**17
"""Logits that take longer than it takes to start threads."""

# ----------------------------------------------------------------------
# The forward recursion of `anaphora.ops.lattices` in torch operations: differentiable any number of times, on any device.
#
# The nodes of a diagonal t + u follow from those of the one before. On it they are counted by u.
NOTHING = -1e30
"""A logarithm of 0 whose gradient is a number."""


def log_likelihoods(
    logits: Tensor, labels: Tensor, frames: Tensor | None, sizes: Tensor | None, *, blank: int
) -> tuple[Tensor, Tensor]:
    """Return log p(y | x) ``(batch,)`` in float64, and which rows have no alignment, ``(batch,)``, whose log p has no meaning.

    logits ``(batch, time, longest + 1, symbols)``; labels ``(batch, longest)``; frames and sizes ``(batch,)``, None where all rows are full.
    """
    rows, time, places, _ = logits.shape
    device = logits.device
    frames = torch.full((rows,), time, device=device) if frames is None else frames.to(device)
    sizes = torch.full((rows,), places - 1, device=device) if sizes is None else sizes.to(device)
    t, u = torch.arange(time, device=device)[:, None], torch.arange(places, device=device)
    real = (t < frames[:, None, None]) & (u <= sizes[:, None, None])
    log_p = torch.where(real[..., None], logits.double(), 0.0).log_softmax(-1)  # padding may be NaN
    following = F.pad(labels.to(device), (0, 1), value=blank)[:, None, :, None].expand(-1, time, -1, 1)
    on_blank = torch.where(real, log_p[..., blank].clamp(min=NOTHING), NOTHING)
    on_label = torch.where(
        real & (u < sizes[:, None, None]), log_p.gather(3, following)[..., 0].clamp(min=NOTHING), NOTHING
    )
    if not time:
        return on_blank.sum((1, 2)), torch.ones(rows, dtype=torch.bool, device=device)
    alpha = F.pad(on_blank.new_zeros(rows, 1), (0, places - 1), value=NOTHING)
    found = [alpha]
    for by_blank, by_label in zip(_skewed(on_blank), _skewed(on_label), strict=True):
        written = F.pad(alpha + by_label, (1, 0), value=NOTHING)[:, :-1]
        alpha = torch.stack((alpha + by_blank, written)).logsumexp(0)
        found.append(alpha)
    # The last blank leads from (T − 1, U) to (T, U), on diagonal T + U.
    ends = torch.stack(found, 1)[torch.arange(rows, device=device), frames + sizes, sizes]
    return ends, (ends <= NOTHING / 2) | (frames == 0)


def _skewed(x: Tensor) -> tuple[Tensor, ...]:
    """Return x ``(batch, time, places)`` by diagonal, ``(batch, places)`` each; what is no node is `NOTHING`."""
    time, places = x.shape[1:]
    u = torch.arange(places, device=x.device)
    t = torch.arange(time + places - 1, device=x.device)[:, None] - u
    nodes = x[:, t.clamp(0, time - 1), u]
    return torch.where((t >= 0) & (t < time), nodes, NOTHING).unbind(1)


# ----------------------------------------------------------------------
# What `transducer_loss` refuses beyond what all losses of speech refuse.
def check_places(longest: int, places: int) -> None:
    """Logits need a place before each symbol of the longest target, and one after it."""
    if longest + 1 != places:
        raise ValueError(
            f"transducer_loss: targets of up to {longest} symbols need logits (…, {longest + 1}, symbols), "
            f"got (…, {places}, symbols)."
        )


def refuse_lost(row: int, frames: Tensor) -> None:
    """The row has no alignment."""
    raise DataError(
        f"transducer_loss: row {row} has {int(frames[row])} frames and no alignment with a probability above 0; "
        'drop such rows or pass impossible="zero".'
    )
