"""Persistent kernels' statements, compiled as C, against the reference loop: forward and backward, every cell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from persistent_host import host_passes
from recurrence_results import CELLS, inputs, reference, results
from test_recurrence_drawn import PROGRAMS, Drawn
from torch import Tensor

from anaphora import nn
from anaphora.engine.arguments import Arguments
from anaphora.engine.backends.base import Params, States
from anaphora.engine.backends.persistent import run
from anaphora.engine.backends.persistent.columns import Unsuitable
from anaphora.engine.backends.reference import run_reference
from anaphora.engine.backends.torch_ops.passes import run_bptt
from anaphora.engine.plan import Plan, make_plan
from anaphora.engine.trace import trace
from anaphora.native import c as compiler
from anaphora.nn.recurrent_step import LayerStep
from sweeps import sweep

pytestmark = [
    pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler here"),
    pytest.mark.usefixtures("quick_compiler"),
]
LENGTHS = torch.tensor([4, 1, 0, 6, 2])


class OnHost:
    """Runs a step through the persistent kernels' passes, as the engine would on a GPU, or through others."""

    def __init__(self, step: LayerStep, run_plan: Any = run.run_persistent):
        self.step, self.run_plan = step, run_plan

    def __call__(
        self,
        params: Params,
        steps: States,
        rows: States,
        initial: States,
        lengths: Tensor | None = None,
        reverse: bool = False,
    ) -> tuple[Tensor, States]:
        traced = trace(self.step, params, steps, rows, initial)
        widths = [[t.shape[-1] for t in group] for group in (steps, rows, initial)]
        plan = make_plan(traced, *widths, {0})
        matrices, vectors = traced.boundary(params)
        stacked = [torch.cat([matrices[p] for p in m.parts]) for m in plan.matrices]
        return self.run_plan(plan, Arguments(stacked, vectors, steps, rows, initial), lengths, reverse)


@pytest.fixture(autouse=True)
def _host(monkeypatch: pytest.MonkeyPatch) -> None:
    def passes(plan: Plan, batch: int, *_: Any) -> Any:
        return host_passes(plan, batch)

    monkeypatch.setattr(run, "_passes", passes)


def _close(ours: list[Tensor], theirs: list[Tensor], allowed: float = 5e-5) -> None:
    """In norm: a single number may be the small difference of large ones."""
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        apart, size = (a - b).norm().item(), b.norm().item()
        assert apart <= allowed * size + 1e-6


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("reverse", [False, True])
def test_every_cell_equals_the_reference(name: str, reverse: bool) -> None:
    cell = CELLS[name]()
    with torch.no_grad():
        for p in cell.parameters():
            p.add_(0.3 * torch.randn_like(p))
    x, initial = inputs(cell, torch.float32, 5, 6)
    lengths = LENGTHS if reverse else None
    ours = results(OnHost(LayerStep(cell)), cell, x, initial, lengths, reverse)
    _close(ours, results(reference(cell), cell, x, initial, lengths, reverse))


def test_noise_is_among_the_inputs() -> None:
    """Dropout masks belong to a row, zoneout's to a step."""
    cell, masks = nn.LSTM(3, 8), (torch.randint(2, (5, 8)) * 2.0,)
    x, initial = inputs(cell, torch.float32, 5, 6)
    kept = tuple(torch.randint(2, (5, 6, 8)).float() for _ in cell.state)
    step = LayerStep(cell, masked=True, zoneout="sample")

    def with_noise(run_it: Any) -> Any:
        return lambda params, steps, rows, *rest: run_it(params, (*steps, *kept), masks, *rest)

    def plain(params: Params, steps: States, rows: States, *rest: Any) -> tuple[Tensor, States]:
        return run_reference(step, params, steps, rows, *rest)

    ours = results(with_noise(OnHost(step)), cell, x, initial, LENGTHS)
    _close(ours, results(with_noise(plain), cell, x, initial, LENGTHS))


def test_without_gradients_nothing_is_kept() -> None:
    cell = nn.GRU(3, 8)
    x, initial = inputs(cell, torch.float32, 5, 6)
    params = dict(cell.named_parameters())
    with torch.no_grad():
        y, (last,) = OnHost(LayerStep(cell))(params, (x,), (), initial)
        y0, (last0,) = reference(cell)(params, (x,), (), initial)
    _close([y, last], [y0, last0])


@settings(
    max_examples=sweep(10, 25),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(program=PROGRAMS, states=st.integers(1, 3), hidden=st.sampled_from([4, 9]))
def test_random_cells_equal_the_reference(
    program: list[tuple[str, int, int]], states: int, hidden: int
) -> None:
    torch.manual_seed(len(program))
    cell = Drawn(3, hidden, states=states, program=program)
    x, initial = inputs(cell, torch.float32, 5, 6)
    try:
        ours = results(OnHost(LayerStep(cell)), cell, x, initial, LENGTHS)
    except Unsuitable:  # a value cut within the state's width
        return
    _close(ours, results(reference(cell), cell, x, initial, LENGTHS), allowed=1e-3)


def _spoil(values: list[Tensor], places: list[tuple[int, int]], what: float) -> None:
    """``what`` in place of some numbers, each named by which tensor and which of its numbers."""
    with torch.no_grad():
        for which, at in places:
            value = values[which % len(values)]
            value.view(-1)[at % value.numel()] = what


@settings(
    max_examples=sweep(5, 15),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    program=PROGRAMS,
    states=st.integers(1, 2),
    places=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 200)), min_size=1, max_size=3),
)
def test_nan_goes_where_torch_lets_it_go(
    program: list[tuple[str, int, int]], states: int, places: list[tuple[int, int]]
) -> None:
    """Into the same outputs, last states and gradients; rows that have ended let none in."""
    torch.manual_seed(len(program))
    cell = Drawn(3, 4, states=states, program=program)
    x, initial = inputs(cell, torch.float32, 5, 6)
    _spoil([x, *initial], places, float("nan"))
    try:
        ours = results(OnHost(LayerStep(cell)), cell, x, initial, LENGTHS)
    except Unsuitable:
        return
    theirs = results(OnHost(LayerStep(cell), run_bptt), cell, x, initial, LENGTHS)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.isnan(), b.isnan())


@pytest.mark.parametrize("op", ["peak", "softmax", "relu", "clamp", "abs", "max", "where", "norm"])
def test_nan_is_not_swallowed_by(op: str) -> None:
    """A NaN in the second of two rows is in its states from that step on, and in no other row's."""
    cell = Drawn(3, 4, states=1, program=[("product", 2, 0), ("add", 0, 3), (op, 4, 2)])
    x, initial = inputs(cell, torch.float32, 2, 4)
    _spoil([x], [(0, 12 + 3)], float("nan"))  # of row 1, step 1
    y, *_ = results(OnHost(LayerStep(cell)), cell, x, initial)
    theirs, *_ = results(OnHost(LayerStep(cell), run_bptt), cell, x, initial)
    assert torch.equal(y.isnan(), theirs.isnan())
    if op not in ("clamp", "where"):
        assert y[1, 1:].isnan().all()
    assert not y[0].isnan().any()
    assert not y[1, 0].isnan().any()
