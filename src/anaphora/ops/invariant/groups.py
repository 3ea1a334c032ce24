"""Recurrences in groups of one size: kernels divide the work by the number of rows, so that number is fixed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

States = tuple[Tensor, ...]
Run = Callable[[States, States, States, Tensor | None], tuple[Tensor, States]]
ROWS = 64


def in_groups(
    run: Run, steps: States, rows: States, initial: States, lengths: Tensor | None, size: int = ROWS
) -> tuple[Tensor, States]:
    """``run(steps, rows, initial, lengths)`` for ``size`` rows at a time, the last of them filled up with zeros.

    Steps ``(B, T, ·)``, rows and initial ``(B, ·)``, lengths ``(B,)``; the result is y ``(B, T, ·)`` and the last states.
    """
    batch = steps[0].shape[0]
    ys: list[Tensor] = []
    ends: list[States] = []
    for begin in range(0, batch, size):
        real = min(size, batch - begin)
        x, constant, first = (tuple(_part(t, begin, size) for t in group) for group in (steps, rows, initial))
        y, last = run(x, constant, first, None if lengths is None else _part(lengths, begin, size))
        ys.append(y[:real])
        ends.append(tuple(state[:real] for state in last))
    if len(ys) == 1:
        return ys[0], ends[0]
    return torch.cat(ys), tuple(torch.cat(states) for states in zip(*ends, strict=True))


def _part(value: Tensor, begin: int, size: int) -> Tensor:
    part = value[begin : begin + size]
    missing = size - part.shape[0]
    return F.pad(part, [0, 0] * (part.dim() - 1) + [0, missing]) if missing else part
