"""Both directions of a layer in one launch a pass: half of the GPU each.

What a step costs is mostly waiting, so two directions on half a GPU each take less time than one after the other on all
of it. They read the same x and write halves of one y, so nothing has to be joined or added up afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.kernels.gpu.ragged import longest_first
from anaphora.kernels.recurrence.arguments import Arguments, Call
from anaphora.kernels.recurrence.backends.base import States
from anaphora.kernels.recurrence.backends.persistent.passes import Kept, Passes, in_memory, lengths_of
from anaphora.kernels.recurrence.backends.torch_ops.bptt import gradient_by_torch
from anaphora.native.cuda import check_report

Sides = tuple[Passes, Passes]


def run_sides(
    sides: Sides, first: Arguments, second: Arguments, lengths: Tensor | None, time_first: bool
) -> tuple[Tensor, States, States]:
    """y ``(B, T, 2H)``, the last states of the forward and of the backward direction, which read the same x.

    ``time_first``: y is to have the time first in memory, as another layer reads it.
    """
    calls = (Call(first.counts(), lengths, False), Call(second.counts(), lengths, True))
    tensors = [*first.flat(), *second.flat()]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        y, *last = _Both.apply(sides, calls, time_first, *tensors)  # type: ignore[no-untyped-call]
        return y, tuple(last[: len(first.initial)]), tuple(last[len(first.initial) :])
    y, ends, _ = _forward(sides, calls, (first, second), False, time_first)
    return y, ends[0], ends[1]


def _forward(
    sides: Sides, calls: tuple[Call, Call], given: tuple[Arguments, Arguments], keep: bool, time_first: bool
) -> tuple[Tensor, list[States], list[Kept]]:
    x = given[0].steps[0]
    check_report(x.device.index or 0)
    lengths, hidden = lengths_of(calls[0], x), sides[0].hidden
    first = sides[0].time_first(given[0].steps, lengths, keep)
    other = sides[1].time_first(given[1].steps[1:], lengths, False)  # masks: nothing is multiplied by them
    given = (given[0]._replace(steps=first), given[1]._replace(steps=(first[0], *other)))
    batch, time = x.shape[:2]
    y = x.new_empty(time, batch, 2 * hidden) if time_first else x.new_empty(batch, time, 2 * hidden)
    places = None if lengths is None else longest_first(lengths, time)
    begun = [
        side.begin(g, places, half, keep) for side, g, half in zip(sides, given, y.chunk(2, -1), strict=True)
    ]
    begun[0].run.run([b.arrays for b in begun], time, batch, False, time_first)
    kept = [side.kept(b, g) for side, b, g in zip(sides, begun, given, strict=True)]
    return y.transpose(0, 1) if time_first else y, [b.states for b in begun], kept


def _backward(
    sides: Sides,
    given: Sequence[Arguments],
    kept: Sequence[Kept],
    dy: Tensor | None,
    ends: Sequence[Sequence[Tensor | None]],
    needs: Sequence[Sequence[bool]],
) -> list[Tensor | None]:
    given = [g._replace(steps=k.steps) for g, k in zip(given, kept, strict=True)]
    time, batch = given[0].steps[0].shape[:2]
    whole, time_first = in_memory(dy)
    halves = (None, None) if whole is None else whole.chunk(2, -1)
    begun = [
        side.begin_backward(g, k, half, end)
        for side, g, k, half, end in zip(sides, given, kept, halves, ends, strict=True)
    ]
    begun[0].run.run([b.arrays for b in begun], time, batch, False, time_first)
    first = sides[0].gradients(begun[0], given[0], kept[0], needs[0], None)
    at = len(given[0].matrices) + len(given[0].vectors)
    dx = first[at]
    if dx is not None:  # the other direction adds to it
        dx = dx.transpose(0, 1).view(time * batch, -1)
    second = sides[1].gradients(begun[1], given[1], kept[1], needs[1], dx)
    first[at], second[at] = second[at], None
    return [*first, *second]


class _Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sides: Sides, calls: tuple[Call, Call], time_first: bool, *tensors: Tensor) -> Any:
        ctx.sides, ctx.calls = sides, calls
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        first, second = _parted(calls, tensors)
        given = (calls[0].arguments(first), calls[1].arguments(second))
        y, last, ctx.kept = _forward(sides, calls, given, True, time_first)
        return y, *last[0], *last[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        calls, dy = ctx.calls, grads[0]
        tensors = _parted(calls, ctx.saved_tensors)
        needs = _parted(calls, ctx.needs_input_grad[3:])
        states = calls[0].counts[-1]
        ends = (grads[1 : 1 + states], grads[1 + states :])
        if torch.is_grad_enabled():
            halves = (None, None) if dy is None else dy.chunk(2, -1)
            return (
                None,
                None,
                None,
                *(
                    g
                    for side, call, t, need, half, end in zip(
                        ctx.sides, calls, tensors, needs, halves, ends, strict=True
                    )
                    for g in gradient_by_torch(side.plan, call, t, need, (half, *end))
                ),
            )
        given = [call.arguments(t) for call, t in zip(calls, tensors, strict=True)]
        found = _backward(ctx.sides, given, ctx.kept, dy, ends, needs)
        flat = (*needs[0], *needs[1])
        return None, None, None, *(g if need else None for g, need in zip(found, flat, strict=True))


def _parted(calls: tuple[Call, Call], values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """What belongs to either direction."""
    count = sum(calls[0].counts)
    return values[:count], values[count:]
