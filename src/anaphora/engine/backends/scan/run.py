"""The entry of the scan backend: cells whose columns never mix from step to step, by fused passes over all steps."""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora.engine.backends.base import BackendName, Case, Job, LayerRun, Result
from anaphora.engine.backends.scan.compiled import CompiledUnits
from anaphora.engine.backends.scan.generated import GeneratedUnits
from anaphora.engine.backends.scan.walk import Direction, Kernels, run_units
from anaphora.engine.plan import Plan
from anaphora.engine.units import CannotWalk, cut_units, reduces
from anaphora.native.c import CannotCompile
from anaphora.native.cuda import nvrtc

name: BackendName = "scan"
about = "one fused pass over all steps: no column waits for another"
planned = True


def why_not(case: Case) -> str | None:
    """Why a step cannot be done in passes over all steps; None when it can."""
    if case.barred is not None or case.plan is None:
        return case.barred or case.no_plan
    if case.plan.loops is not None:
        return "a state's columns mix at every step: a loop over time"
    if not case.one_type:
        return "a parameter has another type than x"
    reason = _no_gpu_kernels(case) if case.device.type == "cuda" else _no_c(case)
    if reason is not None:
        return reason
    try:
        cut_units(case.plan)
    except CannotWalk as found:
        return str(found)
    return None


def _no_c(case: Case) -> str | None:
    if case.device.type != "cpu":
        return "no kernels are generated for this device"
    if case.plan is not None and reduces(case.plan):
        return "the step sums up rows, which c does in one order"
    return case.no_c


def _no_gpu_kernels(case: Case) -> str | None:
    if case.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"no kernels are generated for {case.dtype}"
    if torch.version.hip:
        return "its kernels are made for NVIDIA's GPUs"
    try:
        nvrtc()
    except CannotCompile as found:
        return str(found)
    return None


def run(job: Job) -> Result:
    """Run a plan's units."""
    plan, given = job.plan_and_tensors()
    x = given.steps[0]
    how = Direction(job.run.lengths, job.run.reverse, *x.shape[:2])
    result = run_units(plan, given, how, _kernels(plan, x))
    if x.is_cuda:
        plan.cache.get(_ran(job.run), lambda: True)
    return result


def compiled_before(plan: Plan, run: LayerRun) -> bool:
    """Whether kernels have run forward for such tensors, so that nothing of that pass has to be compiled."""
    return _ran(run) in plan.cache


def _ran(run: LayerRun) -> tuple[object, ...]:
    x = run.steps[0]
    return ("scan", "ran", x.shape, x.dtype, run.lengths is not None, run.reverse, torch.is_grad_enabled())


def _kernels(plan: Plan, x: Tensor) -> Kernels:
    if x.is_cuda:
        return plan.cache.get(("scan", "cuda"), lambda: GeneratedUnits(plan))
    return plan.cache.get(("scan", "c", x.dtype), lambda: CompiledUnits(plan, x.dtype == torch.float64))
