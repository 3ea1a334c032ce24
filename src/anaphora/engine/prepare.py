"""Traces, plans and compiled programs of a step function, made once and kept."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.engine.arguments import Arguments
from anaphora.engine.backends import matrix
from anaphora.engine.backends.base import LayerRun, Native, Params, States, StepFunction
from anaphora.engine.backends.c.compiled import CompiledPlan, Stepper
from anaphora.engine.graph import CannotTrace
from anaphora.engine.plan import Plan, make_plan
from anaphora.engine.rings import Ring
from anaphora.engine.trace import Trace, trace
from anaphora.native import c

COMPILED = (torch.float32, torch.float64)  # types the generated C computes in


@dataclass
class Prepared:
    """Everything known about a step function for given widths. Without a trace, ``reason`` says why there is none."""

    trace: Trace | None = None
    plan: Plan | None = None
    reason: str | None = None
    one_type: bool = True  # all tensors of the plan have the type of x
    compiled: CompiledPlan | None = None
    no_c: str | None = None  # why it was not compiled
    stepper: Stepper | None = None
    matrix_rings: tuple[Ring, ...] = ()  # of a step with matrix-valued states, which is not traced

    def arguments(self, run: LayerRun) -> Arguments:
        """The tensors of a run in the plan's order; products of the same value are stacked."""
        assert self.trace is not None
        assert self.plan is not None
        matrices, vectors = self.trace.boundary(run.params or {})
        stacked = [_stack([matrices[p] for p in m.parts]) for m in self.plan.matrices]
        return Arguments(stacked, vectors, run.steps, run.rows, run.initial)


class Engine:
    """A step function with its traces and compiled programs.

    ``function`` must be pure: its result may depend on its arguments only. ``native``: PyTorch's layer for it.
    """

    def __init__(self, function: StepFunction, name: str = "step", native: Native | None = None):
        self.function, self.name, self.native = function, name, native
        self._prepared: dict[Hashable, Prepared] = {}

    def prepared(self, run: LayerRun) -> Prepared:
        """The plan for the widths, types and parameters of a run."""
        x, params = run.steps[0], run.params or {}
        widths = tuple([t.shape[-1] for t in (*run.steps, *run.rows, *run.initial)])
        shapes = tuple([(name, p.shape) for name, p in params.items()])
        counts = (len(run.steps), len(run.rows))
        key = (widths, counts, x.dtype, x.device.type, x.requires_grad, shapes)
        found = self._prepared.get(key)
        if found is None:
            found = self._prepared[key] = self._prepare(run, params)
        return found

    @property
    def pure(self) -> bool:
        """Whether the function is known to be a plain function of its arguments: every run so far could be traced."""
        return bool(self._prepared) and all(
            p.plan is not None or p.matrix_rings for p in self._prepared.values()
        )

    def _prepare(self, run: LayerRun, params: Params) -> Prepared:
        x = run.steps[0]
        groups = (run.steps, run.rows, run.initial)
        if matrix.shapes_of(run):
            return self._prepare_matrices(run._replace(params=params))
        try:
            traced = trace(self.function, params, *groups)
            steps, rows, states = [[t.shape[-1] for t in group] for group in groups]
            plan = make_plan(traced, steps, rows, states, {0} if x.requires_grad else set())
        except CannotTrace as reason:
            warn_once(f"{self.name} runs step by step in plain torch, which is slower: {reason}.")
            return Prepared(reason=f"the step cannot be traced: {reason}")
        with torch.no_grad():
            matrices, vectors = traced.boundary(params)
        found = Prepared(traced, plan, one_type=all(t.dtype == x.dtype for t in (*matrices, *vectors)))
        if x.device.type == "cpu" and x.dtype in COMPILED:
            try:
                found.compiled = CompiledPlan(plan, x.dtype == torch.float64)
            except c.CannotCompile as reason:
                found.no_c = str(reason)
                warn_once(f"recurrences run without compiled kernels, which is slower: {reason}.")
        return found

    def _prepare_matrices(self, run: LayerRun) -> Prepared:
        """What becomes of the states of a step that sees some of them as matrices."""
        try:
            rings = matrix.classify(run)
        except CannotTrace as reason:
            warn_once(f"{self.name} runs step by step in plain torch, which is slower: {reason}.")
            return Prepared(reason=f"the step cannot be traced: {reason}")
        for ring in rings:
            if ring.kind == "loop":
                said = ring.describe([f"state {i}" for i in range(len(run.initial))])
                warn_once(f"{self.name} runs step by step in plain torch, which is slower: {said}.")
        return Prepared(reason="a state is a matrix", matrix_rings=rings)

    def stepper(self, params: Params, x: Tensor, initial: States) -> Stepper | None:
        """What runs single steps of this function fast; x ``(B, ·)``. ``None`` where nothing does."""
        ready = self.prepared(LayerRun(self.function, params, (x,), (), initial))
        if ready.trace is None or ready.compiled is None:
            return None
        if ready.stepper is None:
            ready.stepper = Stepper(ready.trace, ready.compiled, list(params))
        return ready.stepper


def _stack(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Warn once per process and text."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, stacklevel=2)
