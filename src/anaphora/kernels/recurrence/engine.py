"""The engine: any step function over time, forward and backward, by the fastest way that computes the same.

1. The step is traced and planned (once per function and widths), and the plan is written as C and compiled (once
   per structure, kept on disk).
2. On a GPU the same plan becomes kernels of its own, or torch operations recorded and replayed as a CUDA graph
   (:mod:`~anaphora.kernels.recurrence.choose` says when); without a compiler the loop of these operations runs as it is.
3. What cannot be traced is run by the reference loop, and the engine says so once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from anaphora.kernels.recurrence.arguments import Arguments
from anaphora.kernels.recurrence.backends.c.compiled import CompiledPlan, run_compiled
from anaphora.kernels.recurrence.backends.c.stepping import Stepper
from anaphora.kernels.recurrence.backends.reference import Params, States, StepFunction, run_reference
from anaphora.kernels.recurrence.backends.torch_ops.bptt import run_bptt
from anaphora.kernels.recurrence.backends.triton.passes import printed_before
from anaphora.kernels.recurrence.choose import choose, forced
from anaphora.kernels.recurrence.front.graph import CannotTrace
from anaphora.kernels.recurrence.front.plan import Plan, make_plan
from anaphora.kernels.recurrence.front.trace import Trace, trace
from anaphora.kernels.recurrence.gpu import case_of, run_on_gpu
from anaphora.kernels.toolchain import compiler


@dataclass
class Prepared:
    """Everything known about a step function for given widths."""

    trace: Trace
    plan: Plan
    compiled: CompiledPlan | None
    stepper: Stepper | None = None


class Engine:
    """Runs one step function; keeps its traces and compiled programs.

    ``function`` must be pure: its result may depend on its arguments only.
    """

    def __init__(self, function: StepFunction, name: str = "step"):
        self.function, self.name = function, name
        self._prepared: dict[Hashable, Prepared | None] = {}

    def prepared(
        self, params: Params, steps: Sequence[Tensor], rows: Sequence[Tensor], initial: States
    ) -> Prepared | None:
        """The plan for these widths; ``None`` when the step cannot be traced."""
        x = steps[0]
        wanted = x.requires_grad
        widths = tuple(t.shape[-1] for t in (*steps, *rows, *initial))
        shapes = tuple((name, p.shape) for name, p in params.items())
        key = (widths, len(steps), len(rows), x.dtype, x.device.type, wanted, shapes)
        if key not in self._prepared:
            self._prepared[key] = self._prepare(params, steps, rows, initial, wanted)
        return self._prepared[key]

    def _prepare(
        self, params: Params, steps: Sequence[Tensor], rows: Sequence[Tensor], initial: States, wanted: bool
    ) -> Prepared | None:
        try:
            traced = trace(self.function, params, steps, rows, initial)
            plan = make_plan(
                traced,
                [s.shape[-1] for s in steps],
                [r.shape[-1] for r in rows],
                [s.shape[-1] for s in initial],
                {0} if wanted else set(),
            )
        except CannotTrace as reason:
            _say(f"{self.name} runs step by step in plain torch, which is slower: {reason}.")
            return None
        compiled = None
        if steps[0].device.type == "cpu" and steps[0].dtype in (torch.float32, torch.float64):
            try:
                compiled = CompiledPlan(plan, steps[0].dtype == torch.float64)
            except compiler.CannotCompile as reason:
                _say(f"recurrences run without compiled kernels, which is slower: {reason}.")
        return Prepared(traced, plan, compiled)

    def stepper(self, params: Params, x: Tensor, initial: States) -> Stepper | None:
        """What runs single steps of this function fast; x ``(B, ·)``. ``None`` where nothing does."""
        ready = self.prepared(params, (x,), (), initial)
        if ready is None or ready.compiled is None:
            return None
        if ready.stepper is None:
            ready.stepper = Stepper(ready.trace, ready.compiled, list(params))
        return ready.stepper

    def whole(
        self, params: Params, steps: Sequence[Tensor], rows: Sequence[Tensor], initial: States, native: bool
    ) -> tuple[Plan, Arguments] | None:
        """The plan and what it is given, where one kernel for all steps is chosen on a GPU; ``native``: there is a peer."""
        ready = self.prepared(params, steps, rows, initial)
        if ready is None or not steps[0].shape[0] or not steps[0].shape[1]:
            return None
        given = _arguments(ready, params, steps, rows, initial)
        case = case_of(ready.plan, given, native)
        if choose(case) != "persistent":
            return None
        return ready.plan, given

    def __call__(
        self,
        params: Params,
        steps: Sequence[Tensor],
        rows: Sequence[Tensor],
        initial: States,
        lengths: Tensor | None = None,
        reverse: bool = False,
        peer: Callable[[], tuple[Tensor, States]] | None = None,
    ) -> tuple[Tensor, States]:
        """As :func:`~anaphora.kernels.recurrence.backends.reference.run_reference`, with the same result.

        ``peer`` computes the same by PyTorch's own layer on a GPU, where it has one.
        """
        ready = self.prepared(params, steps, rows, initial)
        if ready is None and peer is not None:
            return peer()
        if ready is None or not steps[0].shape[0] or not steps[0].shape[1]:
            return run_reference(self.function, params, steps, rows, initial, lengths, reverse)
        given = _arguments(ready, params, steps, rows, initial)
        if ready.compiled is not None:
            return run_compiled(ready.compiled, given, lengths, reverse)
        if steps[0].is_cuda:
            case = case_of(ready.plan, given, peer is not None)
            recording = torch.cuda.is_current_stream_capturing()
            way = choose(case, recording and not printed_before(ready.plan, given, lengths))
            if way == "cudnn" and peer is not None:
                return peer()
            if way == "reference":
                return run_reference(self.function, params, steps, rows, initial, lengths, reverse)
            if way == "triton" and case.no_persistent is None:
                peer = partial(run_on_gpu, "persistent", ready.plan, given, lengths, reverse)
            return run_on_gpu(way, ready.plan, given, lengths, reverse, None if forced() else peer)
        return run_bptt(ready.plan, given, lengths, reverse)


def _arguments(
    ready: Prepared, params: Params, steps: Sequence[Tensor], rows: Sequence[Tensor], initial: States
) -> Arguments:
    matrices, vectors = ready.trace.boundary(params)
    stacked = [_stack([matrices[p] for p in m.parts]) for m in ready.plan.matrices]
    return Arguments(stacked, vectors, tuple(steps), tuple(rows), tuple(initial))


def _stack(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


_said: set[str] = set()


def _say(text: str) -> None:
    """Warn once per process and text."""
    if text not in _said:
        _said.add(text)
        warnings.warn(text, stacklevel=2)
