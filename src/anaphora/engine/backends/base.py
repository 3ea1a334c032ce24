"""The interface between the engine and its backends: everything a backend is given and must offer.

A backend is a module with the members of :class:`Backend`. To add one, write the module and list it in
``BACKENDS`` of :mod:`anaphora.engine.dispatch`; its place there is its rank. Every backend computes what
:func:`~anaphora.engine.backends.reference.run_reference` computes, gradients included.

Axes: B batch, T time, I input width, H state width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from anaphora.engine.tuning import Thresholds

if TYPE_CHECKING:
    from anaphora.engine.arguments import Arguments
    from anaphora.engine.plan import Plan
    from anaphora.engine.prepare import Prepared
    from anaphora.engine.rings import Ring
    from anaphora.engine.tuning import Thresholds

Params: TypeAlias = "dict[str, Tensor]"
States: TypeAlias = "tuple[Tensor, ...]"
Result: TypeAlias = "tuple[Tensor, States]"  # y (B, T, H) and the last states, (B, H) each
# step(parameters, inputs of this step, inputs of the whole row, states) -> new states
StepFunction: TypeAlias = "Callable[[Params, States, States, States], States]"
BackendName = Literal[
    "scan", "c", "persistent", "triton", "cudnn", "cuda_graph", "matrix", "torch", "reference"
]


class Native(NamedTuple):
    """The cell's counterpart among PyTorch's own layers."""

    kind: str  # lstm, gru, rnn_tanh or rnn_relu
    weights: Callable[[Params], tuple[Tensor, ...]]  # the cell's parameters -> W_ih, W_hh, b_ih, b_hh


class LayerRun(NamedTuple):
    """One layer in one direction: what is computed, on which tensors."""

    step: StepFunction
    params: Params | None  # by name; None: the step uses its own
    steps: States  # inputs of each step, (B, T, ·) each; the first is x
    rows: States  # inputs that stay the same for a row, (B, ·) each
    initial: States  # (B, H) each
    lengths: Tensor | None = None  # (B,): how many steps of each row are real
    reverse: bool = False  # from each row's end to its start
    native: Native | None = None  # PyTorch's own layer computes the same
    plain: str | None = None  # why only plain torch operations can serve; None when anything can


@dataclass(frozen=True)
class Case:
    """All that the choice of a backend looks at."""

    device: torch.device
    dtype: torch.dtype  # of x
    batch: int
    time: int
    hidden: int
    plan: Plan | None = None  # the traced step
    no_plan: str | None = None  # why there is none
    no_c: str | None = None  # why the plan is not compiled as C
    one_type: bool = True  # every tensor of the plan has the type of x
    native: bool = False  # PyTorch has this very cell
    barred: str | None = None  # why only the reference can serve
    thresholds: Thresholds | None = None  # what was measured on this GPU
    capturing_first: bool = (
        False  # a CUDA graph is being captured and Triton's kernels have not been compiled yet
    )
    outputs_on_cpu: bool = False  # no gradient is wanted, so rows must have the same bits in every batch
    threads: int = 1  # that torch may use on the CPU
    matrix_rings: tuple[Ring, ...] = ()  # of a cell with matrix-valued states, which has no plan


class Job(NamedTuple):
    """A run that a backend was chosen for."""

    run: LayerRun
    prepared: Prepared | None  # trace, plan and compiled program; present for backends with ``planned``
    given: Arguments | None  # the tensors in the plan's order; likewise
    stand_in: Callable[[], Result] | None  # computes the same while a shape is not worth capturing yet

    def plan_and_tensors(self) -> tuple[Plan, Arguments]:
        """For backends that run a plan."""
        assert self.prepared is not None
        assert self.prepared.plan is not None
        assert self.given is not None
        return self.prepared.plan, self.given


class Backend(Protocol):
    """What runs a layer; implemented by modules."""

    @property
    def name(self) -> BackendName:
        """What users see, and what ``force`` takes."""

    @property
    def about(self) -> str:
        """One phrase: how it runs a layer."""

    @property
    def planned(self) -> bool:
        """Whether it runs the traced plan, not the step function itself."""

    def why_not(self, case: Case) -> str | None:
        """Why it cannot serve, as a clause that follows "because"; None when it can. Must not run anything."""

    def run(self, job: Job) -> Result:
        """Run the layer. The dispatcher calls it only where ``why_not`` found no reason."""


def no_plan(case: Case) -> str | None:
    """Why no backend that runs plans can serve this case."""
    if case.barred is not None:
        return case.barred
    if case.plan is None:
        return case.no_plan
    # Where the outputs have no gradient, an unread one has none but at the end: a zero would make NaN of NaN.
    return "no step reads the output of the one before" if case.plan.unread else None
