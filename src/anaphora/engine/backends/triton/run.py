"""The entry of the Triton backend: kernels generated for the plan, a few per step, captured and replayed as CUDA graphs."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch

from anaphora.engine.backends.base import BackendName, Case, Job, LayerRun, Result, no_plan
from anaphora.engine.backends.cuda_graph.capture import run_captured
from anaphora.engine.backends.triton.passes import GENERATED_PASSES, programs, ran_before
from anaphora.engine.backends.triton.stages import CannotGenerate
from anaphora.engine.plan import Plan
from anaphora.native.following import needs_gradient

name: BackendName = "triton"
about = "kernels generated for the cell, a few per step, captured as a CUDA graph"
planned = True
OLDEST = (7, 0)  # compute capability Triton makes kernels for


def why_not(case: Case) -> str | None:
    """Why these kernels cannot serve; None when they can."""
    if case.device.type != "cuda":
        return "the tensors are not on an NVIDIA GPU"
    reason = no_plan(case)
    if reason is not None or case.plan is None:
        return reason
    if case.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"Triton's kernels are not made for {case.dtype}"
    if not installed():
        return "Triton is not installed"
    if torch.cuda.get_device_capability(case.device) < OLDEST:
        return "the GPU is older than those Triton makes kernels for"
    try:
        programs(case.plan)
    except CannotGenerate as found:
        return f"the step has {found}"
    return None


def run(job: Job) -> Result:
    """Run a plan by generated kernels; a shape that is not captured yet is left to the stand-in."""
    return run_captured(
        *job.plan_and_tensors(), job.run.lengths, job.run.reverse, GENERATED_PASSES, job.stand_in
    )


def compiled_before(plan: Plan, run: LayerRun) -> bool:
    """Whether the kernels have run for such tensors, so that nothing has to be compiled."""
    tensors = (*run.steps, *run.rows, *run.initial, *(run.params or {}).values())
    grad = needs_gradient(*tensors)
    return ran_before(plan, run.steps[0].dtype, run.lengths is not None, grad)


@cache
def installed() -> bool:
    """Whether Triton can be imported."""
    return find_spec("triton") is not None
