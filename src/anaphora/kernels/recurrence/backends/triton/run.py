"""The printed kernels over time, recorded and replayed as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from anaphora.kernels.recurrence.arguments import Arguments
from anaphora.kernels.recurrence.backends.cuda_graph.capture import run_graphed
from anaphora.kernels.recurrence.backends.reference import States
from anaphora.kernels.recurrence.backends.triton.passes import PRINTED_PASSES, programs
from anaphora.kernels.recurrence.backends.triton.stages import CannotPrint
from anaphora.kernels.recurrence.front.plan import Plan

OLDEST = (7, 0)  # compute capability Triton makes kernels for


def run_triton(
    plan: Plan,
    given: Arguments,
    lengths: Tensor | None,
    reverse: bool,
    peer: Callable[[], tuple[Tensor, States]] | None = None,
) -> tuple[Tensor, States]:
    """Run a plan over time by printed kernels; same contract as ``run_graphed``."""
    return run_graphed(plan, given, lengths, reverse, PRINTED_PASSES, peer)


def why_not(plan: Plan, given: Arguments) -> str | None:
    """Why these kernels cannot serve, in words; None when they can."""
    x = given.steps[0]
    if not x.is_cuda:
        return "the tensors are not on an NVIDIA GPU"
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"Triton's kernels are not made for {x.dtype}"
    if not _installed():
        return "Triton is not installed"
    if torch.cuda.get_device_capability(x.device) < OLDEST:
        return "the GPU is older than those Triton makes kernels for"
    try:
        programs(plan)
    except CannotPrint as reason:
        return f"the step has {reason}"
    return None


@cache
def _installed() -> bool:
    return find_spec("triton") is not None
