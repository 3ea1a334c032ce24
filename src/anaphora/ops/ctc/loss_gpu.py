"""The CTC loss and its gradient on an NVIDIA GPU in three kernels, with sums in float64; see `anaphora.ops.ctc.log_domain`.

`ctc_frames` takes the log of the sum of each frame, `ctc_sums` sums over paths, forwards and backwards at once, and `ctc_gradient` goes
over the scores once more. As in `anaphora.ops.transducer.loss_gpu` the kernels check lengths and symbols and report.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.native.cuda import KINDS, Kernel

TYPES = {**KINDS, torch.float64: 3}
"""Types of scores by what ``KIND`` is in a source."""
MOST_LABELS = 1023
"""Symbols of a target: each has a thread, and the last blank another."""
_WARPS = 8


def _kernel(part: str, threads: int) -> Kernel:
    here = Path(__file__).parent
    files = (here.parent / "gpu" / "rows.cu", here / "common.cu", here / f"{part}.cu")
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
    """Losses ``(B,)``, zero where no path spells the target; status ``(B,)``, see `anaphora.ops.gpu.reported`; and what `gradient`
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
