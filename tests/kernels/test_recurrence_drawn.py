"""Cells drawn at random from a small grammar of operations: generated against eager."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recurrence_results import COMPILER, I, inputs, is_compiled, make_engine, reference, results
from torch import Tensor

from anaphora import nn
from sweeps import sweep

UNARY = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "exp": lambda v: torch.exp(torch.tanh(v)),
    "neg": torch.neg,
    "sin": torch.sin,
    "cos": torch.cos,
    "abs": torch.abs,
    "square": torch.square,
    "root": lambda v: torch.sqrt(1 + v * v),
    "softplus": torch.nn.functional.softplus,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "elu": torch.nn.functional.elu,
    "leaky": torch.nn.functional.leaky_relu,
    "clamp": lambda v: v.clamp(-0.7, 0.6),
    "log": lambda v: torch.log1p(v * v),
    "norm": lambda v: torch.nn.functional.layer_norm(v, v.shape[-1:]),
    "softmax": lambda v: torch.softmax(v, -1),
    "centred": lambda v: v - v.mean(-1, keepdim=True),
    "scaled": lambda v: v / (1 + v.var(-1, keepdim=True)),
    "swapped": lambda v: torch.cat(v.chunk(2, -1)[::-1], -1),
    "peak": lambda v: v - 0.5 * v.amax(-1, keepdim=True),
}


BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda a, b: a / (1 + b * b),
    "max": torch.maximum,
    "where": lambda a, b: torch.where(a > b, a, 2 * b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "times sum": lambda a, b: a * b.sum(-1, keepdim=True),
}


class Drawn(nn.Cell):
    """A cell drawn at random: each instruction makes a value from earlier ones, the last ones are the states.

    Every state is read: a step that ignores one is left to the reference.
    """

    def setup(self, inputs: int, hidden: int, *, states: int, program: list[tuple[str, int, int]]) -> None:
        self.state = tuple(f"s{i}" for i in range(states))
        self.program = program
        self.enter = nn.Affine(inputs, 2 * hidden)
        self.scale = torch.nn.Parameter(torch.randn(hidden))
        wanted = [k for k, (op, _, _) in enumerate(program) if op == "product"]
        self.maps = torch.nn.ModuleDict({str(k): nn.Affine(hidden, hidden, recurrent=0) for k in wanted})

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        values = [*self.enter(x).chunk(2, -1), *states]
        for k, (op, a, b) in enumerate(self.program):
            left, right = values[a % len(values)], values[b % len(values)]
            if op == "product":
                new = self.maps[str(k)](left)
            elif op == "vector":
                new = left * self.scale + 0.5
            elif op in UNARY:
                new = UNARY[op](left)
            else:
                new = BINARY[op](left, right)
            values.append(new)
        return tuple(torch.tanh(v) + 0.5 * s for v, s in zip(values[-len(states) :], states, strict=True))


OPERATIONS = ["product", "product", "vector", *UNARY, *BINARY]


PROGRAMS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=9
)


def _check_drawn(program: list[tuple[str, int, int]], states: int, hidden: int, compile_it: bool) -> None:
    torch.manual_seed(len(program))
    cell = Drawn(I, hidden, states=states, program=program).double()
    x, initial = inputs(cell, torch.float64, 5, 4)
    engine = make_engine(cell)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*there is no C compiler")
        if not compile_it:
            engine.planned(dict(cell.named_parameters()), (x,), (), initial)
        lengths = torch.tensor([4, 1, 3, 4, 2])
        ours = results(engine, cell, x, initial, lengths)
    theirs = results(reference(cell), cell, x, initial, lengths)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)
    assert is_compiled(engine) is (compile_it and COMPILER)


@settings(max_examples=sweep(10, 25), suppress_health_check=[HealthCheck.too_slow])
@given(program=PROGRAMS, states=st.integers(1, 3), hidden=st.sampled_from([2, 4, 17]))
@pytest.mark.usefixtures("quick_compiler")
def test_random_cells_generated_equal_eager(
    program: list[tuple[str, int, int]], states: int, hidden: int
) -> None:
    _check_drawn(program, states, hidden, compile_it=True)


@pytest.mark.slow
@settings(max_examples=sweep(100, 300), suppress_health_check=[HealthCheck.too_slow])
@given(program=PROGRAMS, states=st.integers(1, 3), hidden=st.sampled_from([2, 4, 17]))
@pytest.mark.usefixtures("quick_compiler")
def test_many_random_cells_generated_equal_eager(
    program: list[tuple[str, int, int]], states: int, hidden: int
) -> None:
    _check_drawn(program, states, hidden, compile_it=True)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(program=PROGRAMS, states=st.integers(1, 3), hidden=st.sampled_from([2, 4, 17]))
@pytest.mark.usefixtures("quick_compiler")
def test_random_cells_derived_equal_eager(
    program: list[tuple[str, int, int]], states: int, hidden: int
) -> None:
    _check_drawn(program, states, hidden, compile_it=False)
