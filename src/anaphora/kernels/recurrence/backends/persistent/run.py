"""A plan run by its persistent kernels, and when it cannot be."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from anaphora.kernels.recurrence.arguments import Arguments, Call
from anaphora.kernels.recurrence.backends.persistent.both import Sides, run_sides
from anaphora.kernels.recurrence.backends.persistent.clusters import closer, clusters_at_once
from anaphora.kernels.recurrence.backends.persistent.columns import Program, Unsuitable
from anaphora.kernels.recurrence.backends.persistent.passes import Pass, Passes
from anaphora.kernels.recurrence.backends.persistent.program import Programs, make_programs
from anaphora.kernels.recurrence.backends.persistent.source import Kernel
from anaphora.kernels.recurrence.backends.persistent.tiling import choose
from anaphora.kernels.recurrence.backends.reference import States
from anaphora.kernels.recurrence.backends.torch_ops.bptt import gradient_by_torch
from anaphora.kernels.recurrence.front.plan import Plan
from anaphora.kernels.recurrence.precision import tf32_allowed
from anaphora.kernels.toolchain import nvrtc
from anaphora.kernels.toolchain.compiler import CannotCompile

SECOND_LAUNCH = 300.0  # µs of the host for another forward and backward pass
_KINDS = {torch.float32: "tf32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def why_not(plan: Plan, given: Arguments) -> str | None:
    """Why persistent kernels cannot serve this plan with these tensors; None when they can."""
    x = given.steps[0]
    if not x.is_cuda or torch.version.hip:
        return "there is no NVIDIA GPU"
    if torch.cuda.get_device_capability(x.device)[0] != 9:
        return "the GPU is no Hopper (compute capability 9)"
    if x.dtype not in _KINDS or any(t.dtype != x.dtype for t in given.flat()):
        return "its numbers are not all float32, all bfloat16 or all float16"
    if x.dtype == torch.float32 and not tf32_allowed():
        return "float32 products must be exact (torch.backends.cudnn.allow_tf32 is off)"
    reason = _no_compiler()
    if reason is not None:
        return reason
    try:
        _passes(plan, x.shape[0], x.dtype, x.device)
    except Unsuitable as reason_found:
        return str(reason_found)
    return None


@cache
def _no_compiler() -> str | None:
    try:
        nvrtc.library()
    except CannotCompile as reason:
        return str(reason)
    return None


def run_persistent(
    plan: Plan, given: Arguments, lengths: Tensor | None, reverse: bool
) -> tuple[Tensor, States]:
    """Run a plan over time; shapes as in the reference. ``why_not`` must have had nothing against it."""
    call = Call(given.counts(), lengths, reverse)
    tensors = given.flat()
    x = given.steps[0]
    passes = _passes(plan, x.shape[0], x.dtype, x.device)
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        y, *last = _Persistent.apply(passes, call, *tensors)  # type: ignore[no-untyped-call]
        return y, tuple(last)
    y, ends, _ = passes.forward(call, given, keep=False)
    return y, ends


def run_both(
    plans: tuple[Plan, Plan], first: Arguments, second: Arguments, lengths: Tensor | None, turned: bool
) -> tuple[Tensor, States, States] | None:
    """Both directions of a layer at once: y ``(B, T, 2H)`` and either's last states. None where one after the other takes
    less time, that of the host to launch it twice included.

    ``why_not`` must have had nothing against either. ``turned``: y has the time first in memory.
    """
    x = first.steps[0]
    known: dict[Hashable, Any] = plans[0].__dict__.setdefault("_both", {})
    key = (id(plans[1]), x.shape[0], x.dtype, x.device)
    if key not in known:
        if len(known) > 1024:
            known.clear()
        known[key] = (*_sides(plans, x.shape[0], x.dtype, x.device), plans[1])
    sides, more, _ = known[key]
    if sides is None or more * x.shape[1] > SECOND_LAUNCH:
        return None
    return run_sides(sides, first, second, lengths, turned)


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


class _Persistent(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, passes: Passes, call: Call, *tensors: Tensor) -> Any:
        y, last, ctx.kept = passes.forward(call, call.arguments(tensors), keep=True)
        ctx.passes, ctx.call = passes, call
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return y, *last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        tensors, needs = ctx.saved_tensors, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            return None, None, *gradient_by_torch(ctx.passes.plan, ctx.call, tensors, needs, grads)
        found = ctx.passes.backward(ctx.call, ctx.call.arguments(tensors), ctx.kept, grads, needs)
        return None, None, *(g if need else None for g, need in zip(found, needs, strict=True))


def _passes(plan: Plan, batch: int, dtype: torch.dtype, device: torch.device, sides: int = 1) -> Passes:
    """The kernels for a plan, batch and type, for one direction or both; raises :class:`Unsuitable`."""
    known: dict[Hashable, Any] = plan.__dict__.setdefault("_persistent", {})
    key = (batch, dtype, device, sides)
    if key not in known:
        if len(known) > 1024:
            known.clear()
        known[key] = _made(plan, known, batch, dtype, device, sides)
    found: Passes = known[key]
    return found


def _made(
    plan: Plan, known: dict[Hashable, Any], batch: int, dtype: torch.dtype, device: torch.device, sides: int
) -> Passes:
    if "programs" not in known:
        known["programs"] = make_programs(plan)
    programs: Programs = known["programs"]
    facts = torch.cuda.get_device_properties(device)
    processors, kind = facts.multi_processor_count, _KINDS[dtype]
    architecture = f"sm_{facts.major}{facts.minor}a"

    def clusters(blocks: int) -> int:
        return clusters_at_once(blocks, architecture, device) // sides

    def made(program: Program, before: Kernel | None = None) -> Pass:
        tiling = choose(program, programs.hidden, batch, kind != "tf32", processors // sides)
        if tiling is None:
            raise Unsuitable(f"recurrent weights of {programs.hidden} units do not fit on the GPU's chip")
        tiling = closer(program, tiling, batch, kind != "tf32", processors // sides, clusters)
        same = ("pass", id(program), tiling, before and before.tiling, kind, device, sides)
        if same not in known:
            kernel = Kernel(program, tiling, kind, before, sides)
            known[same] = Pass(kernel, device, architecture, processors)
        found: Pass = known[same]
        return found

    forward = made(programs.forward)
    return Passes(programs, forward, made(programs.backward, forward.kernel), made(programs.running))
