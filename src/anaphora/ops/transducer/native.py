"""The transducer loss and its gradient in C, for float32 on a CPU: `loss.c`, where there is a compiler.

The softmax and the gradient go over the logits once each, with nothing of their size in between; by torch operations the same takes some
ten passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.native.c import LANES, CLibrary, beside, check

library = CLibrary(
    "transducer",
    lambda double: LANES.read_text() + beside(__package__, "loss.c"),
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
