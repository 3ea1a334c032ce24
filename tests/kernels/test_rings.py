"""Which states are a map, a scan, a walk or a loop over time: found in the graph, compared with derivatives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from recurrence_results import CELLS, Run
from ring_cells import ANY_PROGRAM, Program, draw_cell, kinds_by_calculus
from torch import Tensor

from anaphora import nn
from anaphora.engine.plan import Plan
from anaphora.nn.recurrent_step import LayerStep


def plan_of(cell: nn.Cell, step: LayerStep | None = None, extra: tuple[Tensor, ...] = ()) -> Plan:
    dtype = next(cell.parameters()).dtype
    x = torch.zeros(2, 3, cell.inputs, dtype=dtype, requires_grad=True)
    states = tuple(torch.zeros(2, cell.hidden, dtype=dtype) for _ in cell.state)
    run = Run(step or LayerStep(cell))
    found = run.planned(dict(cell.named_parameters()), (x, *extra), (), states).plan
    assert found is not None
    return found


@settings(max_examples=200, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(own=st.booleans(), states=st.integers(1, 3), program=ANY_PROGRAM)
def test_two_hundred_random_cells(own: bool, states: int, program: Program) -> None:
    cell = draw_cell(own, states, program)
    found = {ring.states: ring.kind for ring in plan_of(cell).rings}
    assert found == kinds_by_calculus(cell)


@pytest.mark.parametrize("name", CELLS)
def test_cells_with_a_matrix_between_steps_are_loops(name: str) -> None:
    (ring,) = plan_of(CELLS[name]()).rings
    assert ring.kind == "loop"
    assert "through the matrix" in ring.reason


class Chain(nn.Cell):
    """h scans what v scanned, and reads it through a matrix; v comes first."""

    state = ("h", "v")

    def setup(self, inputs: int, hidden: int) -> None:
        self.enter = nn.Affine(inputs, 2 * hidden)
        self.inner = nn.Affine(hidden, hidden, recurrent=0)

    def step(self, x: Tensor, h: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        w, f = self.enter(x).chunk(2, -1)
        v = 0.9 * v + w
        f = torch.sigmoid(f)
        return f * h + (1 - f) * torch.tanh(self.inner(v)), v


class Spiral(nn.Cell):
    """A complex number as two states that read each other."""

    state = ("re", "im")

    def setup(self, inputs: int, hidden: int) -> None:
        self.enter = nn.Affine(inputs, 2 * hidden)
        self.angle = torch.nn.Parameter(torch.rand(hidden))

    def step(self, x: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.enter(x).chunk(2, -1)
        c, s = 0.9 * torch.cos(self.angle), 0.9 * torch.sin(self.angle)
        return c * re - s * im + a, s * re + c * im + b


def test_a_chain_of_scans_and_a_block() -> None:
    cell = Chain(2, 4)
    assert [r.describe(cell.state) for r in plan_of(cell).rings] == [
        "v: scan (diagonal)",
        "h: scan (diagonal)",
    ]
    pair = Spiral(2, 4)
    assert [r.describe(pair.state) for r in plan_of(pair).rings] == ["re, im: scan (2×2 blocks)"]


def test_noise_between_steps_stays_affine() -> None:
    cell = Chain(2, 4)
    step = LayerStep(cell, zoneout="sample", keep=(0.1, 0.1))
    masks = (torch.zeros(2, 3, 4), torch.zeros(2, 3, 4))
    assert [r.kind for r in plan_of(cell, step, masks).rings] == ["scan", "scan"]


def test_explain_says_which_and_why() -> None:
    x = torch.randn(3, 4, 2)
    chain = nn.Recurrent(Chain(2, 5)).explain(x)
    assert chain.choices[0].states == ("v: scan (diagonal)", "h: scan (diagonal)")
    assert "\n  v: scan (diagonal)\n" in str(chain)
    gru = nn.Recurrent(nn.GRU(2, 5)).explain(x).choices[0]
    assert gru.states == ("h: loop (not a scan: sigmoid reads h through the matrix gates.weights.1)",)
    assert gru.states[0] in gru.__str__()
