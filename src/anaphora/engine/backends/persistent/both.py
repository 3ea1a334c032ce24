"""Both directions of a layer in one launch a pass: half of the GPU each.

What a step costs is mostly waiting, so two directions on half a GPU each take less time than one after the other on all
of it. They read the same x and write halves of one y, so nothing has to be joined or added up afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.base import States
from anaphora.engine.backends.persistent.passes import Kept, Passes, in_memory, lengths_of
from anaphora.engine.backends.torch_ops.bptt import differentiable
from anaphora.engine.ragged import longest_first
from anaphora.native.cuda import check_report
from anaphora.native.fused import Backward, fused

Sides = tuple[Passes, Passes]


def run_sides(
    sides: Sides, first: Arguments, second: Arguments, lengths: Tensor | None, time_first: bool
) -> tuple[Tensor, States, States]:
    """y ``(B, T, 2H)``, the last states of the forward and of the backward direction, which read the same x.

    ``time_first``: y is to have the time first in memory, as another layer reads it.
    """
    calls = (Call(first.counts(), lengths, False), Call(second.counts(), lengths, True))
    tensors = [*first.flat(), *second.flat()]
    y, *last = _both(*tensors, sides=sides, calls=calls, time_first=time_first)
    return y, tuple(last[: len(first.initial)]), tuple(last[len(first.initial) :])


def _forward(
    keep: bool, *tensors: Tensor, sides: Sides, calls: tuple[Call, Call], time_first: bool
) -> tuple[tuple[Tensor, ...], Sequence[Any]]:
    one, two = _parted(calls, tensors)
    given = (calls[0].arguments(one), calls[1].arguments(two))
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
    y = y.transpose(0, 1) if time_first else y
    return (y, *begun[0].states, *begun[1].states), (kept,)


def _backward(
    back: Backward, *, sides: Sides, calls: tuple[Call, Call], time_first: bool
) -> list[Tensor | None]:
    lists, tensors, grads, flat_needs = back
    kept: Sequence[Kept] = lists[0]
    states = calls[0].counts[-1]
    dy, ends = grads[0], (grads[1 : 1 + states], grads[1 + states :])
    needs = _parted(calls, flat_needs)
    given = [call.arguments(t) for call, t in zip(calls, _parted(calls, tensors), strict=True)]
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


def _by_torch(
    *tensors: Tensor, sides: Sides, calls: tuple[Call, Call], time_first: bool
) -> tuple[Tensor, ...]:
    pairs = zip(sides, calls, _parted(calls, tensors), strict=True)
    (y, ends), (z, others) = [differentiable(side.plan, call, call.arguments(t)) for side, call, t in pairs]
    return torch.cat((y, z), -1), *ends, *others


def _parted(calls: tuple[Call, Call], values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """What belongs to either direction."""
    count = sum(calls[0].counts)
    return values[:count], values[count:]


_both = fused(_forward, _backward, _by_torch)
