"""Back-propagation through time by a plan's two passes: in torch operations, or in what else computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.base import BackendName, Case, Job, Result, States, no_plan
from anaphora.engine.backends.torch_ops import fixed
from anaphora.engine.backends.torch_ops.passes import LOOP_PASSES, Passes, forward_loop
from anaphora.engine.plan import Plan
from anaphora.native.fused import Backward, fused
from anaphora.ops.invariant import in_groups

name: BackendName = "torch"
about = "the plan as a loop of torch operations"
planned = True


def why_not(case: Case) -> str | None:
    """Why the plan cannot be run by torch operations; None when it can."""
    return no_plan(case)


def run(job: Job) -> Result:
    """Run a plan by torch operations, one by one; outputs on the CPU do not depend on the batch, bit for bit."""
    plan, given = job.plan_and_tensors()
    lengths, reverse = job.run.lengths, job.run.reverse
    if not fixed.wanted(given.initial[0]):
        return run_bptt(plan, given, lengths, reverse)

    left = given.steps[0].shape[0]

    def group(steps: States, rows: States, initial: States, ends: Tensor | None) -> Result:
        nonlocal left
        part = Arguments(given.matrices, given.vectors, steps, rows, initial)
        call = Call(given.counts(), ends, reverse, fixed=min(left, fixed.ROWS))
        left -= fixed.ROWS
        y, last, _ = forward_loop(plan, call, part, keep=False)
        return y, last

    return in_groups(group, tuple(given.steps), tuple(given.rows), given.initial, lengths, fixed.ROWS)


def run_bptt(
    plan: Plan, given: Arguments, lengths: Tensor | None, reverse: bool, passes: Passes = LOOP_PASSES
) -> tuple[Tensor, States]:
    """Run a plan over time by its two passes, the backward one derived."""
    call = Call(given.counts(), lengths, reverse)
    y, *last = _bptt(*given.flat(), plan=plan, call=call, passes=passes)
    return y, tuple(last)


def differentiable(plan: Plan, call: Call, given: Arguments) -> tuple[Tensor, States]:
    """The plan's forward pass as torch operations that autograd follows, any number of times."""
    y, last, _ = forward_loop(plan, call, given, keep=False)
    return y, last


def gradient_by_torch(
    plan: Plan, call: Call, tensors: Sequence[Tensor], needs: Sequence[bool], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradient by torch operations, which can be differentiated again."""
    return _bptt.gradients(tensors, grads, needs, {"plan": plan, "call": call, "passes": LOOP_PASSES})


def _forward(
    keep: bool, *tensors: Tensor, plan: Plan, call: Call, passes: Passes
) -> tuple[tuple[Tensor, ...], Sequence[Any]]:
    y, last, kept = passes.forward(plan, call, call.arguments(tensors), keep)
    return (y, *(s.clone() if keep else s for s in last)), (kept,)


def _backward(back: Backward, *, plan: Plan, call: Call, passes: Passes) -> Sequence[Tensor | None]:
    kept, tensors, grads, _ = back
    return passes.backward(plan, call, call.arguments(tensors), kept[0], grads)


def _by_torch(*tensors: Tensor, plan: Plan, call: Call, passes: Passes) -> tuple[Tensor, ...]:
    y, last = differentiable(plan, call, call.arguments(tensors))
    return y, *last


_bptt = fused(_forward, _backward, _by_torch)
