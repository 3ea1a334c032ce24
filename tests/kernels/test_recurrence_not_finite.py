"""NaN and ±inf pass through every backend on the CPU as through the reference loop, forwards and backwards."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recurrence_nan import Spoilt, drawn_cell
from recurrence_results import CELLS, COMPILER, I, is_compiled, make_engine, reference, results
from test_recurrence_drawn import BINARY, UNARY, Drawn
from torch import Tensor
from torch.nn import functional as F

from anaphora import nn
from anaphora.engine.dispatch import force
from anaphora.native import c as compiler
from anaphora.nn.recurrent_run import run_layer
from sweeps import sweep

SPECIAL = [math.nan, math.inf, -math.inf]
# Torch itself is of two minds, by whether an element falls into a whole vector: gelu of +inf, the gradient of elu at NaN.
FOLLOWED = [op for op in (*UNARY, *BINARY) if op not in ("gelu", "elu")]
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(["product", "vector", *FOLLOWED]), st.integers(0, 30), st.integers(0, 30)),
    min_size=1,
    max_size=6,
)
PLACES = st.lists(
    st.tuples(st.sampled_from(["x", "state", "weight"]), st.integers(0, 1000), st.sampled_from(SPECIAL)),
    min_size=1,
    max_size=3,
)


def _poisoned(
    cell: nn.Cell, places: list[tuple[str, int, float]], batch: int = 3, time: int = 3
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Random inputs and states, and the cell's own weights, with special values at some places."""
    dtype = next(cell.parameters()).dtype
    x = torch.randn(batch, time, cell.inputs, dtype=dtype)
    states = tuple(torch.randn(batch, cell.hidden, dtype=dtype) for _ in cell.state)
    for where, at, value in places:
        weights = [p.data for p in cell.parameters()]
        target = {"x": [x], "state": list(states), "weight": weights}[where]
        chosen = target[at % len(target)].view(-1)
        chosen[at % chosen.numel()] = value
    return x.requires_grad_(), tuple(s.requires_grad_() for s in states)


def _check(cell: nn.Cell, x: Tensor, initial: tuple[Tensor, ...], compile_it: bool) -> None:
    engine = make_engine(cell)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*there is no C compiler")
        if not compile_it:
            patch.setattr(compiler, "compiler", lambda: None)
        ours = results(engine, cell, x, initial)
    theirs = results(reference(cell), cell, x, initial)
    assert is_compiled(engine) is (compile_it and COMPILER)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6, equal_nan=True)


def _check_drawn(
    program: list[tuple[str, int, int]],
    hidden: int,
    places: list[tuple[str, int, float]],
    compile_it: bool,
) -> None:
    torch.manual_seed(len(program))
    cell = Drawn(I, hidden, states=2, program=program).double()
    _check(cell, *_poisoned(cell, places), compile_it)


@settings(max_examples=sweep(30, 80), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(program=PROGRAMS, hidden=st.sampled_from([2, 4, 17]), places=PLACES)
def test_random_cells_by_torch_operations(
    program: list[tuple[str, int, int]], hidden: int, places: list[tuple[str, int, float]]
) -> None:
    _check_drawn(program, hidden, places, compile_it=False)


@pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler here")
@settings(max_examples=sweep(8, 20), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(program=PROGRAMS, hidden=st.sampled_from([2, 4, 17]), places=PLACES)
@pytest.mark.usefixtures("quick_compiler")
def test_random_cells_in_c(
    program: list[tuple[str, int, int]], hidden: int, places: list[tuple[str, int, float]]
) -> None:
    _check_drawn(program, hidden, places, compile_it=True)


class One(nn.Cell):
    """One operation on the state, between an input and the next state."""

    state = ("h",)

    def setup(self, inputs: int, hidden: int, *, op: Callable[[Tensor], Tensor]) -> None:
        self.op = op
        self.scale = torch.nn.Parameter(torch.ones(hidden))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.op(x * self.scale + h)


def _bounds(v: Tensor) -> Tensor:
    return torch.full_like(v, 0.6)


# What the grammar of random cells does not reach, and values where torch has a rule of its own for the gradient.
OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "clamp": lambda v: v.clamp(-0.7, 0.6),
    "clamp below": lambda v: v.clamp(min=0),
    "clamp above": lambda v: v.clamp(max=0),
    "hardtanh": lambda v: F.hardtanh(v, -0.7, 0.6),
    "relu": torch.relu,
    "relu6": F.relu6,
    "leaky": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
    "silu": F.silu,
    "abs": torch.abs,
    "sign": lambda v: v + torch.sign(v),
    "root": torch.sqrt,
    "log": torch.log,
    "log1p": torch.log1p,
    "power": lambda v: v**3,
    "reciprocal": torch.reciprocal,
    "times zero": lambda v: v * 0,
    "plus zero": lambda v: 1 / (v + 0.0),
    "zero minus": lambda v: 1 / (0.0 - v),
    "divided": lambda v: v / 3 + v / 4 + v / 1e-310,
    "larger": lambda v: torch.maximum(v, _bounds(v)),
    "smaller": lambda v: torch.minimum(_bounds(v), v),
    "largest": lambda v: v - v.amax(-1, keepdim=True),
    "largest of parts": lambda v: v * torch.cat((v[:, 3:], v[:, :3].exp()), 1).amax(-1, keepdim=True),
    "softmax": lambda v: torch.softmax(v, -1),
    "norm": lambda v: F.layer_norm(v, v.shape[-1:]),
    "variance": lambda v: v * v.var(-1, keepdim=True),
    "where": lambda v: torch.where(v > 0.6, v.log(), v.tanh()),
    "lerp from the start": lambda v: torch.lerp(v, _bounds(v), 0.3),
    "lerp from the end": lambda v: torch.lerp(v, _bounds(v), 0.7),
    "lerp by weights": lambda v: torch.lerp(_bounds(v), v * 2, v.sigmoid()),
}
VALUES = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.6, -0.7, 20.0, 1.0, -3.0]


@pytest.mark.parametrize("compile_it", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.usefixtures("quick_compiler")
def test_each_operation(name: str, compile_it: bool) -> None:
    """Every special value alone in its row, in every column, with rows beside it."""
    if compile_it and compiler.compiler() is None:
        pytest.skip("no C compiler here")
    values = [v for v in VALUES if not (name == "elu" and math.isnan(v))]
    width = len(values)
    cell = One(width, width, op=OPERATIONS[name]).double()
    x = torch.tensor(values, dtype=torch.float64).repeat(width + 1, 1, 1)
    for k in range(width):  # row k: only value k, among ordinary numbers
        x[k, 0] = torch.linspace(-0.5, 0.5, width, dtype=torch.float64)
        x[k, 0, k] = values[k]
    h = torch.zeros(width + 1, width, dtype=torch.float64)
    if name != "plus zero":
        h = -h  # −0 + −0 is −0: the sign of a zero reaches the operation
    _check(cell, x.requires_grad_(), (h.requires_grad_(),), compile_it)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["lstm", "peephole", "layer norm", "gru after", "gru before", "relu"])
@pytest.mark.parametrize("special", SPECIAL)
def test_cells_of_the_library(name: str, special: float, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    cell = CELLS[name]().to(dtype)
    places = [("x", 4, special), ("state", 5, special)]
    _check(cell, *_poisoned(cell, places), compile_it=compiler.compiler() is not None)


def test_what_lies_past_the_end_of_a_row_is_not_read() -> None:
    torch.manual_seed(3)
    cell = nn.LSTM(I, 5)
    x, lengths = torch.randn(3, 4, I), torch.tensor([4, 2, 0])
    spoilt = x.clone()
    for row, end in enumerate(lengths):
        spoilt[row, end:] = math.nan
    found: list[Any] = []
    for given_x in (x, spoilt):
        given_x.requires_grad_()
        y, last = nn.Recurrent(cell)(given_x, lengths)
        found.append([y, *last, *torch.autograd.grad(y.sum() + last[0].sum(), [given_x, *cell.parameters()])])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


class Aside(nn.Cell):
    """The second state is a value on the side that no step reads."""

    state = ("h", "aside")

    def setup(self, inputs: int, hidden: int) -> None:
        self.affine = nn.Affine(inputs, hidden)

    def step(self, x: Tensor, h: Tensor, aside: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(self.affine(x)), torch.exp(h) / (1 + self.affine(x) ** 2)


def test_a_state_that_no_step_reads_has_a_gradient_at_the_last_step_only() -> None:
    torch.manual_seed(3)
    x, initial = torch.randn(4, 5, I), tuple(torch.randn(4, 3, requires_grad=True) for _ in range(2))
    x[1, 2, 0] = math.nan
    found: list[list[Tensor]] = []
    cell = Aside(I, 3)
    for run in (make_engine(cell), reference(cell)):
        with pytest.warns(UserWarning, match="never read") if not found else warnings.catch_warnings():
            leaf = x.clone().requires_grad_()
            found.append(results(run, cell, leaf, initial))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a.isnan(), b.isnan())
    dx = torch.autograd.grad(
        reference(cell)(dict(cell.named_parameters()), (leaf,), (), initial)[0].sum(), leaf
    )[0]
    assert dx.isnan().any(-1).sum() == 1  # the step itself; the one after it is finite


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("seed", range(13))
def test_rows_that_end_early(seed: int, bad: float) -> None:
    """NaN where the loop has it when every row is run to its own end; also where its last state is infinite."""
    name = sorted(CELLS)[seed - 1]
    cell = drawn_cell(seed, I, 4) if math.isnan(bad) or not seed else CELLS[name]()
    case = Spoilt(cell, seed, bad, batch=5, time=4)
    with force("torch"):
        assert not case.usable or not case.differences(run_layer)
