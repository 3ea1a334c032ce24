"""The entry of the scan backend: cells whose columns never mix from step to step, by fused passes over all steps."""

from __future__ import annotations

import torch

from anaphora.kernels.recurrence.backends.base import BackendName, Case, Job, Result
from anaphora.kernels.recurrence.backends.scan.compiled import CompiledUnits
from anaphora.kernels.recurrence.backends.scan.walk import Direction, run_units
from anaphora.kernels.recurrence.front.plan import Plan
from anaphora.kernels.recurrence.front.units import CannotWalk, cut_units, reduces

name: BackendName = "scan"
about = "one fused pass over all steps: no column waits for another"
planned = True


def why_not(case: Case) -> str | None:
    """Why a step cannot be done in passes over all steps; None when it can."""
    if case.barred is not None or case.plan is None:
        return case.barred or case.no_plan
    if case.plan.loops is not None:
        return "a state's columns mix at every step: a loop over time"
    if case.device.type != "cpu":
        return "no kernels are generated for this device"
    if reduces(case.plan):
        return "the step sums up rows, which c does in one order"
    if not case.one_type:
        return "a parameter has another type than x"
    if case.no_c is not None:
        return case.no_c
    try:
        cut_units(case.plan)
    except CannotWalk as reason:
        return str(reason)
    return None


def run(job: Job) -> Result:
    """Run a plan's units."""
    plan, given = job.plan_and_tensors()
    batch, time = given.steps[0].shape[:2]
    how = Direction(job.run.lengths, job.run.reverse, batch, time)
    return run_units(plan, given, how, _compiled(plan, given.steps[0].dtype))


def _compiled(plan: Plan, dtype: torch.dtype) -> CompiledUnits:
    return plan.cache.get(("scan", "c", dtype), lambda: CompiledUnits(plan, dtype == torch.float64))
