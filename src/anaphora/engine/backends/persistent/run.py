"""The entry of the persistent backend: one kernel for all steps, and when it cannot serve."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.base import BackendName, Case, Job, Result, States, no_plan
from anaphora.engine.backends.persistent.clusters import closer, clusters_at_once
from anaphora.engine.backends.persistent.columns import Program, Unsuitable
from anaphora.engine.backends.persistent.launch import Pass, make_programs
from anaphora.engine.backends.persistent.passes import Kept, Passes, in_memory, lengths_of
from anaphora.engine.backends.persistent.source import Kernel
from anaphora.engine.backends.persistent.tiling import choose
from anaphora.engine.backends.torch_ops.passes import differentiable
from anaphora.engine.plan import Plan
from anaphora.engine.precision import tf32_allowed
from anaphora.engine.ragged import longest_first
from anaphora.native.c import CannotCompile
from anaphora.native.cuda import check_report, nvrtc
from anaphora.native.fused import Backward, fused

# Microseconds that the host takes to launch another forward and backward pass: what both directions in one launch may
# cost the GPU more than one after the other. Measured with benchmarks/recurrence_gpu.py --eager on an H200's host.
SECOND_LAUNCH = 300.0
name: BackendName = "persistent"
about = "one kernel for all steps that keeps the recurrent weights on the chip"
planned = True
_KINDS = {torch.float32: "tf32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def why_not(case: Case) -> str | None:
    """Why persistent kernels cannot serve; None when they can."""
    if case.device.type != "cuda" or torch.version.hip:
        return "the tensors are not on an NVIDIA GPU"
    reason = no_plan(case)
    if reason is not None or case.plan is None:
        return reason
    if torch.cuda.get_device_capability(case.device)[0] != 9:
        return "the GPU is no Hopper (compute capability 9)"
    if case.dtype not in _KINDS or not case.one_type:
        return "its numbers are not all float32, all bfloat16 or all float16"
    if case.dtype == torch.float32 and not tf32_allowed():
        return "float32 products must be exact (torch.backends.cudnn.allow_tf32 is off)"
    reason = _no_compiler()
    if reason is not None:
        return reason
    try:
        _passes(case.plan, case.batch, case.dtype, case.device)
    except Unsuitable as found:
        return str(found)
    return None


def run(job: Job) -> Result:
    """Run a plan by one kernel."""
    return run_persistent(*job.plan_and_tensors(), job.run.lengths, job.run.reverse)


@cache
def _no_compiler() -> str | None:
    try:
        nvrtc()
    except CannotCompile as reason:
        return str(reason)
    return None


def run_persistent(
    plan: Plan, given: Arguments, lengths: Tensor | None, reverse: bool
) -> tuple[Tensor, States]:
    """Run a plan over time; shapes as in the reference. ``why_not`` must have had nothing against it."""
    call = Call(given.counts(), lengths, reverse)
    x = given.steps[0]
    passes = _passes(plan, x.shape[0], x.dtype, x.device)
    y, *last = _persistent(*given.flat(), passes=passes, call=call)
    return y, tuple(last)


def run_both(first: Job, second: Job, time_first: bool) -> tuple[Tensor, list[States]] | None:
    """Both directions of a layer at once: y ``(B, T, 2H)`` and each direction's last states. None where one after the
    other takes less time, the host's time for a second launch included.

    ``why_not`` must have found nothing against either. ``time_first``: y has the time first in memory.
    """
    (plan, given), (other, theirs) = first.plan_and_tensors(), second.plan_and_tensors()
    x = given.steps[0]
    # The other plan is kept as well: its identity is a part of the key.
    key = ("persistent", "both", id(other), x.shape[0], x.dtype, x.device)
    sides, more, _ = plan.cache.get(
        key, lambda: (*_sides((plan, other), x.shape[0], x.dtype, x.device), other)
    )
    if sides is None or more * x.shape[1] > SECOND_LAUNCH:
        return None
    y, *ends = run_sides(sides, given, theirs, first.run.lengths, time_first)
    return y, ends


def _sides(
    plans: tuple[Plan, Plan], batch: int, dtype: torch.dtype, device: torch.device
) -> tuple[Sides | None, float]:
    """Kernels that serve both directions, and how many µs a step they take more than one direction after the other."""
    try:
        alone = _passes(plans[0], batch, dtype, device)
        first, second = (_passes(plan, batch, dtype, device, 2) for plan in plans)
    except Unsuitable:
        return None, 0.0
    for one, other in zip(first.all, second.all, strict=True):
        if one.kernel.source != other.kernel.source:
            return None, 0.0
    one_after_another = 2 * sum(p.cost(batch) for p in alone.all[:2])
    return (first, second), sum(p.cost(batch) for p in first.all[:2]) - one_after_another


def _forward(
    keep: bool, *tensors: Tensor, passes: Passes, call: Call
) -> tuple[tuple[Tensor, ...], Sequence[Any]]:
    y, last, kept = passes.forward(call, call.arguments(tensors), keep=keep)
    return (y, *last), (kept,)


def _backward(back: Backward, *, passes: Passes, call: Call) -> Sequence[Tensor | None]:
    kept, tensors, grads, needs = back
    return passes.backward(call, call.arguments(tensors), kept[0], grads, needs)


def _by_torch(*tensors: Tensor, passes: Passes, call: Call) -> tuple[Tensor, ...]:
    y, last = differentiable(passes.plan, call, call.arguments(tensors))
    return y, *last


_persistent = fused(_forward, _backward, _by_torch)


def _passes(plan: Plan, batch: int, dtype: torch.dtype, device: torch.device, sides: int = 1) -> Passes:
    """The kernels for a plan, batch and type, for one direction or both; raises :class:`Unsuitable`."""
    key = ("persistent", "passes", batch, dtype, device, sides)
    return plan.cache.get(key, lambda: _made(plan, batch, dtype, device, sides))


def _made(plan: Plan, batch: int, dtype: torch.dtype, device: torch.device, sides: int) -> Passes:
    programs = plan.cache.get(("persistent", "programs"), lambda: make_programs(plan))
    facts = torch.cuda.get_device_properties(device)
    sms, kind = facts.multi_processor_count, _KINDS[dtype]
    architecture = f"sm_{facts.major}{facts.minor}a"

    def clusters(blocks: int) -> int:
        return clusters_at_once(blocks, architecture, device) // sides

    def made(program: Program, before: Kernel | None = None) -> Pass:
        tiling = choose(program, programs.hidden, batch, kind != "tf32", sms // sides)
        if tiling is None:
            raise Unsuitable(f"recurrent weights of {programs.hidden} units do not fit on the GPU's chip")
        tiling = closer(program, tiling, batch, kind != "tf32", sms // sides, clusters)
        earlier = before and before.tiling
        # Equal programs share a kernel; the program is kept with it, since its identity is a part of the key.
        key = ("persistent", "pass", id(program), tiling, earlier, kind, device, sides)
        found, _ = plan.cache.get(
            key,
            lambda: (
                Pass(Kernel(program, tiling, kind, before, sides), device, architecture, sms),
                program,
            ),
        )
        return found

    forward = made(programs.forward)
    return Passes(programs, forward, made(programs.backward, forward.kernel), made(programs.running))


# ----------------------------------------------------------------------
# Both directions of a layer in one launch a pass: half of the GPU each.
#
# What a step costs is mostly waiting, so two directions on half a GPU each take less time than one after the other on all
# of it. They read the same x and write halves of one y, so nothing has to be joined or added up afterwards.
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


def _forward_both(
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


def _backward_both(
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


def _both_by_torch(
    *tensors: Tensor, sides: Sides, calls: tuple[Call, Call], time_first: bool
) -> tuple[Tensor, ...]:
    pairs = zip(sides, calls, _parted(calls, tensors), strict=True)
    (y, ends), (z, others) = [differentiable(side.plan, call, call.arguments(t)) for side, call, t in pairs]
    return torch.cat((y, z), -1), *ends, *others


def _parted(calls: tuple[Call, Call], values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """What belongs to either direction."""
    count = sum(calls[0].counts)
    return values[:count], values[count:]


_both = fused(_forward_both, _backward_both, _both_by_torch)
