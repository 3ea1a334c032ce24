"""A plan on a GPU: what can serve it, and running it the chosen way."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from torch import Tensor

from anaphora.kernels.recurrence.arguments import Arguments
from anaphora.kernels.recurrence.backends.cuda_graph.capture import run_graphed
from anaphora.kernels.recurrence.backends.persistent import run as persistent
from anaphora.kernels.recurrence.backends.reference import States
from anaphora.kernels.recurrence.backends.triton import run as triton_step
from anaphora.kernels.recurrence.choose import Case, Way
from anaphora.kernels.recurrence.front.plan import Plan
from anaphora.kernels.recurrence.precision import tf32_allowed

Peer = Callable[[], tuple[Tensor, States]]


def case_of(plan: Plan, given: Arguments, native: bool) -> Case:
    """What there is to choose from for these tensors; found once per plan and shapes."""
    x = given.steps[0]
    known: dict[Hashable, Case] = plan.__dict__.setdefault("_cases", {})
    key = (x.shape, x.dtype, x.device, tf32_allowed(), native)
    if key not in known:
        if len(known) > 4096:
            known.clear()
        known[key] = Case(
            time=x.shape[1],
            batch=x.shape[0],
            hidden=given.initial[0].shape[1],
            native=native,
            no_persistent=persistent.why_not(plan, given),
            no_triton=triton_step.why_not(plan, given),
        )
    return known[key]


def run_on_gpu(
    way: Way, plan: Plan, given: Arguments, lengths: Tensor | None, reverse: bool, peer: Peer | None = None
) -> tuple[Tensor, States]:
    """Run a plan over time the given way; ``peer``: what else computes it, for shapes that are not recorded yet."""
    if way == "persistent":
        return persistent.run_persistent(plan, given, lengths, reverse)
    if way == "triton":
        return triton_step.run_triton(plan, given, lengths, reverse, peer)
    return run_graphed(plan, given, lengths, reverse)
