"""The transducer loss and its gradient on an NVIDIA GPU in three kernels, see `anaphora.ops.transducer.lattice` for the formulas.

`transducer_nodes` takes the softmax of each node and keeps three numbers of it, `transducer_sums` sums over alignments, and
`transducer_gradient` goes over the logits once more. A small lattice takes the GPU less time than the host needs to start the
kernels, so the host does little: one allocation, no copy of what lies on the GPU already, and no check of it. The kernels check
lengths and symbols, never read outside of their arrays, and report.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.native.cuda import KINDS, Kernel

TYPES = {**KINDS, torch.float64: 3}
"""Types of logits by what ``KIND`` is in a source."""
MOST_NODES = 2**31 - 1

_WARPS = 8
_MOST_THREADS = 1024


def _kernel(part: str, threads: int) -> Kernel:
    here = Path(__file__).parent
    files = (here.parent / "gpu" / "rows.cu", here / "common.cu", here / f"{part}.cu")
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
    """Losses ``(B,)``, zero where there is no alignment; status ``(B,)``, see `anaphora.ops.gpu.reported`; and what `gradient`
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
