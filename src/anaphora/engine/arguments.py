"""What a run of a recurrence is given: its tensors in order, and checks that they go together.

Kernels index memory by the shape of x and by the lengths, so nothing may reach them unchecked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.engine.backends.base import LayerRun, States


class Arguments(NamedTuple):
    """All tensors of a run, in the order autograd sees them."""

    matrices: Sequence[Tensor]  # (out, in), as the plan stacks them
    vectors: Sequence[Tensor]  # (n,)
    steps: Sequence[Tensor]  # (B, T, ·)
    rows: Sequence[Tensor]  # (B, ·)
    initial: States  # (B, ·)

    def flat(self) -> list[Tensor]:
        return [t for group in self for t in group]

    def counts(self) -> tuple[int, ...]:
        return tuple(len(group) for group in self)


@dataclass(frozen=True)
class Call:
    """How a run goes: how many tensors of each kind, the rows' lengths, and the direction."""

    counts: tuple[int, ...]
    lengths: Tensor | None
    reverse: bool
    fixed: int = (
        0  # not 0: products in one order for any number of rows, of which so many in each group are real
    )

    def arguments(self, tensors: Sequence[Tensor]) -> Arguments:
        """The flat list in its groups again."""
        groups, at = [], 0
        for count in self.counts:
            groups.append(tuple(tensors[at : at + count]))
            at += count
        return Arguments(*groups)


def checked_lengths(lengths: Tensor | None, x: Tensor, where: str = "Recurrent") -> Tensor | None:
    """``lengths`` ``(B,)`` of the rows of x ``(B, T, ·)``, all within 0 … T, beside x where looking at them needs it.

    On a GPU the values are checked by the GPU itself, which does not wait: a wrong one stops it with an assertion before
    any kernel that follows can use it. While a program is compiled they cannot be looked at; its operators do that.
    """
    if lengths is None:
        return None
    lengths = torch.as_tensor(lengths)
    if lengths.shape != x.shape[:1]:
        raise ValueError(f"{where}: lengths must be ({x.shape[0]},), got {tuple(lengths.shape)}.")
    if lengths.dtype not in INTEGERS and lengths.numel():
        raise ValueError(f"{where}: lengths must be integers, got {lengths.dtype}.")
    lengths = lengths.to(torch.int64).contiguous()  # as kernels read them; also those of an empty list
    if torch.compiler.is_compiling() or not lengths.numel():
        return lengths
    if lengths.is_cuda and not x.is_cuda:
        lengths = lengths.to(x.device)
    if lengths.is_cuda:
        within = lengths.clamp(0, x.shape[1]).eq(lengths).all()
        torch._assert_async(within, f"{where}: lengths must lie between 0 and the {x.shape[1]} steps of x.")
    elif lengths.device.type == "cpu":
        least, most = torch.aminmax(lengths)
        if int(least) < 0 or int(most) > x.shape[1]:
            raise ValueError(f"{where}: lengths must lie between 0 and the {x.shape[1]} steps of x.")
    return lengths


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def checked(run: LayerRun) -> LayerRun:
    """The run, if all its tensors have as many rows and steps as x (a ValueError otherwise), as kernels can read it.

    This is the one place where layouts are made safe, before any backend: no stride of 0, no gaps, no negation that
    torch has put off. A step input may lie batch first or time first in memory.
    """
    shape = run.steps[0].shape
    if len(shape) != 3:
        raise ValueError(f"a recurrence needs x (batch, time, width), got {tuple(shape)}.")
    for t in run.steps:
        if t.shape[:2] != shape[:2] or t.dim() != 3:
            raise ValueError(f"a step input must be {tuple(shape[:2])} and its width, got {tuple(t.shape)}.")
    for t in (*run.rows, *run.initial):
        if t.dim() != 2 or t.shape[0] != shape[0]:
            raise ValueError(f"a state or row input must be ({shape[0]}, width), got {tuple(t.shape)}.")
    if run.lengths is not None and (run.lengths.shape != shape[:1] or run.lengths.dtype not in INTEGERS):
        found = f"{tuple(run.lengths.shape)} of {run.lengths.dtype}"
        raise ValueError(f"lengths must be {shape[0]} integers, got {found}.")
    if run.lengths is not None and not (run.lengths.dtype == torch.int64 and run.lengths.is_contiguous()):
        run = run._replace(lengths=run.lengths.to(torch.int64).contiguous())  # as kernels read them
    if all(_plain(t) for t in run.steps) and all(_plain(t) for t in (*run.rows, *run.initial)):
        return run
    groups = [tuple([_made_plain(t) for t in group]) for group in (run.steps, run.rows, run.initial)]
    return run._replace(steps=groups[0], rows=groups[1], initial=groups[2])


def _plain(value: Tensor) -> bool:
    """Whether memory holds these numbers without gaps, batch first or (three axes) time first."""
    if value.is_neg():
        return False
    return value.is_contiguous() or (value.dim() == 3 and value.transpose(0, 1).is_contiguous())


def _made_plain(value: Tensor) -> Tensor:
    return value if _plain(value) else value.resolve_neg().contiguous()
