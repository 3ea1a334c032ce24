"""Cells without loops by passes over all steps: outputs, last states and all gradients against the loop over the step."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from recurrence_results import Run, inputs, make_engine, reference, results
from ring_cells import AFFINE, BENT, MIXED, Program, draw_cell, programs
from scan_interpreted import InterpretedKernels
from test_rings import Chain, Spiral
from torch import Tensor

from anaphora import nn
from anaphora.engine.backends.base import LayerRun
from anaphora.engine.backends.scan.walk import Direction, run_units
from anaphora.engine.dispatch import explain, force, run_layer
from anaphora.engine.units import CannotWalk
from anaphora.native import c as compiler
from anaphora.nn.recurrent_step import LayerStep

I, H = 3, 5
needs_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="there is no C compiler")


class MinGRU(nn.Cell):
    def setup(self, inputs: int, hidden: int) -> None:
        self.both = nn.Affine(inputs, 2 * hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z, new = self.both(x).chunk(2, -1)
        z = torch.sigmoid(z)
        return (1 - z) * h + z * new


class Readout(nn.Cell):
    """The output is a map of the memory: no step reads it."""

    state = ("h", "c")

    def setup(self, inputs: int, hidden: int) -> None:
        self.gates = nn.Affine(inputs, 3 * hidden)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        f, o, new = self.gates(x).chunk(3, -1)
        c = torch.sigmoid(f) * c + torch.tanh(new)
        return torch.sigmoid(o) * torch.tanh(c), c


class Mixed(nn.Cell):
    """A scan, a product of it, and a map of both; the output has another matrix in front of a scan."""

    state = ("y", "re", "im")

    def setup(self, inputs: int, hidden: int) -> None:
        self.enter, self.deep = nn.Affine(inputs, 2 * hidden), nn.Affine(2 * hidden, 2 * hidden, recurrent=0)
        self.out, self.angle = (
            nn.Affine(2 * hidden, hidden, recurrent=0),
            torch.nn.Parameter(torch.rand(hidden)),
        )

    def step(self, x: Tensor, y: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
        a, b = self.deep(torch.tanh(self.enter(x))).chunk(2, -1)
        c, s = 0.9 * torch.cos(self.angle), 0.9 * torch.sin(self.angle)
        re, im = c * re - s * im + a, s * re + c * im + b
        return self.out(torch.cat((re, im), -1)) + a, re, im


class Elementwise(nn.Cell):
    def setup(self, inputs: int, hidden: int) -> None:
        self.enter, self.own = nn.Affine(inputs, hidden), torch.nn.Parameter(torch.rand(hidden))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.relu(self.enter(x) + self.own * h)


pytestmark = pytest.mark.usefixtures("quick_compiler")
CELLS = {
    "mingru": MinGRU,
    "readout": Readout,
    "mixed": Mixed,
    "walk": Elementwise,
    "chain": Chain,
    "spiral": Spiral,
}


def _interpreted(cell: nn.Cell) -> Any:
    engine = Run(LayerStep(cell))

    def run(*arguments: Any) -> Any:
        ready = engine.planned(*arguments)
        assert ready.plan is not None
        given = ready.arguments(LayerRun(engine.engine.function, *arguments))
        reverse = len(arguments) > 5 and arguments[5]
        return run_units(
            ready.plan, given, Direction(None, reverse, *arguments[1][0].shape[:2]), InterpretedKernels()
        )

    return run


def _close(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


DRAWN = {
    "own": st.booleans(),
    "states": st.integers(1, 3),
    "reverse": st.booleans(),
    "program": programs(*AFFINE, *AFFINE, *BENT, *MIXED),
}
COMMON: dict[str, Any] = {
    "deadline": None,
    "phases": [Phase.generate],
    "suppress_health_check": list(HealthCheck),
}


def _check_drawn(own: bool, states: int, reverse: bool, program: Program) -> None:
    cell = draw_cell(own, states, program)
    x, initial = inputs(cell, torch.float64, 2, 3)
    plan = Run(LayerStep(cell)).planned(dict(cell.named_parameters()), (x,), (), initial).plan
    assert plan is not None
    assume(plan.loops is None)
    try:
        ours = results(_interpreted(cell), cell, x, initial, None, reverse)
    except CannotWalk:
        return  # a column that follows other equations than its neighbour runs by c
    _close(ours, results(reference(cell), cell, x, initial, None, reverse), 1e-9)


@settings(max_examples=25, **COMMON)
@given(**DRAWN)
def test_random_cells_cut_into_units(**drawn: Any) -> None:
    _check_drawn(**drawn)


@pytest.mark.slow
@settings(max_examples=200, **COMMON)
@given(**DRAWN)
def test_two_hundred_random_cells_cut_into_units(**drawn: Any) -> None:
    _check_drawn(**drawn)


@needs_compiler
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [None, [6, 0, 3, 5]])
@pytest.mark.parametrize("name", CELLS)
def test_outputs_and_gradients(name: str, lengths: list[int] | None, reverse: bool) -> None:
    torch.manual_seed(0)
    cell = CELLS[name](I, H).double()
    x, initial = inputs(cell, torch.float64, 4, 6)
    ends = None if lengths is None else torch.tensor(lengths)
    with force("scan"):
        ours = results(make_engine(cell), cell, x, initial, ends, reverse)
    _close(ours, results(reference(cell), cell, x, initial, ends, reverse), 1e-11)


@needs_compiler
@pytest.mark.parametrize("name", ["mingru", "walk", "chain", "spiral"])
def test_the_bits_are_the_loops(name: str) -> None:
    torch.manual_seed(1)
    cell = CELLS[name](I, 70)
    x, initial = inputs(cell, torch.float32, 9, 11)
    given = (dict(cell.named_parameters()), (x,), (), initial, torch.tensor([11, 3, 0, 5, 11, 1, 2, 7, 9]))
    found = []
    for backend in ("scan", "c"):
        with torch.no_grad(), force(backend):  # type: ignore[arg-type]
            y, last = make_engine(cell)(*given)
            found.append([y, *last])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@needs_compiler
@pytest.mark.parametrize("name", CELLS)
def test_single_steps_and_pieces_have_the_bits_of_the_whole(name: str) -> None:
    torch.manual_seed(2)
    layer = nn.Recurrent(CELLS[name](I, 20)).eval()
    x = torch.randn(3, 12, I)
    with torch.no_grad(), force("scan"):
        whole, last = layer(x)
        first, middle = layer(x[:, :5])
        second, end = layer(x[:, 5:], initial=middle)
    assert torch.equal(torch.cat((first, second), 1), whole)
    assert all(torch.equal(a, b) for a, b in zip(end, last, strict=True))
    state = layer.initial_state(3, x)
    with torch.inference_mode():
        for t in range(12):
            y, state = layer.step(x[:, t], state)
            assert torch.equal(y, whole[:, t])
        alone, _ = layer.step(x[1:2, 0], layer.initial_state(1, x))
    assert torch.equal(alone, whole[1:2, 0])


@needs_compiler
def test_threads_share_columns_without_changing_a_bit() -> None:
    torch.manual_seed(3)
    layer = nn.Recurrent(MinGRU(4, 300))
    x = torch.randn(2, 200, 4)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            with force("scan"):
                y, _ = layer(x)
            found.append([y, *torch.autograd.grad(y.square().sum(), list(layer.parameters()))])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@needs_compiler
def test_second_derivatives_do_not_read_past_a_row_s_end() -> None:
    """Products leave what was in memory there; the gradient of a step that is left out is 0 times that."""
    torch.manual_seed(4)
    cell = CELLS["mingru"](2, 2).double()
    engine, params = make_engine(cell), dict(cell.named_parameters())
    x, initial = torch.randn(2, 3, 2, dtype=torch.float64), (torch.randn(2, 2, dtype=torch.float64),)
    found = []
    for filled in (False, True):  # new memory is NaN
        torch.use_deterministic_algorithms(filled)
        try:
            with force("scan"):
                y, _ = engine(params, (x,), (), initial, torch.tensor([3, 2]))
            first = torch.autograd.grad(y.square().sum(), list(params.values()), create_graph=True)
            sums = sum(g.square().sum() for g in first)
            found.append(torch.autograd.grad(sums, list(params.values())))
        finally:
            torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@needs_compiler
@pytest.mark.parametrize("name", CELLS)
def test_gradients_and_second_derivatives_by_differences(name: str) -> None:
    torch.manual_seed(4)
    cell = CELLS[name](2, 2).double()
    engine = make_engine(cell)
    params = dict(cell.named_parameters())
    names = list(params)
    initial = tuple(torch.randn(2, 2, dtype=torch.float64, requires_grad=True) for _ in cell.state)
    x = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, rest[len(initial) :], strict=True))
        y, last = engine(given, (x,), (), rest[: len(initial)], torch.tensor([3, 2]))
        return y, *last

    with force("scan"):
        assert torch.autograd.gradcheck(run, (x, *initial, *params.values()))
        if name == "mingru":
            assert torch.autograd.gradgradcheck(run, (x, *initial, *params.values()))


@needs_compiler
def test_noise_masks_and_both_directions() -> None:
    torch.manual_seed(5)
    layer = nn.Recurrent(
        MinGRU(I, H), layers=2, bidirectional=True, recurrent_dropout=0.3, zoneout=0.2
    ).double()
    x, lengths = torch.randn(4, 7, I, dtype=torch.float64), torch.tensor([7, 2, 5, 0])
    found = []
    for backend in ("scan", "reference"):
        torch.manual_seed(6)
        with force(backend):  # type: ignore[arg-type]
            y, last = layer(x, lengths)
        found.append(
            [y, *last, *torch.autograd.grad(y.square().sum() + last[0].sum(), list(layer.parameters()))]
        )
    _close(found[0], found[1], 1e-10)


class Ratio(nn.Cell):
    """An output that is infinite where x is not positive, and that no step reads."""

    state = ("h", "c")

    def setup(self, inputs: int, hidden: int) -> None:
        self.enter = nn.Affine(inputs, hidden)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        a = self.enter(x)
        c = 0.5 * c + a
        return c / torch.relu(a), c


@needs_compiler
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_lies_past_the_end_changes_nothing(bad: float) -> None:
    torch.manual_seed(7)
    cell, x, lengths = Readout(I, H), torch.randn(3, 4, I), torch.tensor([4, 2, 3])
    params, initial = dict(cell.named_parameters()), tuple(torch.zeros(3, H) for _ in range(2))
    found = []
    for past in (0.0, bad):
        x[1, 2:] = x[2, 3:] = past
        leaf = x.clone().requires_grad_()
        with force("scan"):
            y, last = make_engine(cell)(params, (leaf,), (), initial, lengths)
        found.append([y, *torch.autograd.grad(y.sum() + last[1].sum(), [leaf, *params.values()])])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@needs_compiler
def test_an_output_that_nobody_uses_has_no_gradient_to_make_nan_of() -> None:
    torch.manual_seed(8)
    cell, x = Ratio(I, H), torch.randn(3, 4, I)
    params, initial = dict(cell.named_parameters()), tuple(torch.zeros(3, H) for _ in range(2))
    for index in (0, 1):
        found = []
        for run in (make_engine(cell), reference(cell)):
            leaf = x.clone().requires_grad_()
            with force("scan"):
                _, last = run(params, (leaf,), (), initial)
            found.append(torch.autograd.grad(last[index].sum(), [leaf, *params.values()]))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, equal_nan=True)
    assert found[0][0].isfinite().all()


@needs_compiler
def test_what_is_chosen() -> None:
    def chosen(cell: nn.Cell, x: Tensor) -> str:
        engine = Run(LayerStep(cell)).engine
        initial = tuple(x.new_zeros(x.shape[0], cell.hidden) for _ in cell.state)
        return explain(
            engine, LayerRun(engine.function, dict(cell.named_parameters()), (x,), (), initial)
        ).backend

    x = torch.randn(16, 4, I)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert chosen(MinGRU(I, H), x) == "c"  # the same pass
        assert chosen(MinGRU(I, H), x[:1]) == "scan"  # threads share columns
        torch.set_num_threads(1)
        assert chosen(MinGRU(I, H), x[:1]) == "c"
        assert chosen(Readout(I, H), x) == "scan"
        assert chosen(Mixed(I, H), x) == "scan"
        assert chosen(nn.GRU(I, H), x) == "c"
    finally:
        torch.set_num_threads(before)


def test_without_a_compiler_an_unread_output_is_left_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise compiler.CannotCompile("there is no C compiler")

    monkeypatch.setattr("anaphora.engine.prepare.CompiledPlan", fails)
    torch.manual_seed(8)
    cell = Readout(I, H)
    x, initial = inputs(cell, torch.float32, 2, 3)
    engine = Run(LayerStep(cell)).engine
    run = LayerRun(engine.function, dict(cell.named_parameters()), (x,), (), initial)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert explain(engine, run).backend == "reference"
        assert torch.equal(run_layer(engine, run)[0], reference(cell)(run.params, (x,), (), initial)[0])
