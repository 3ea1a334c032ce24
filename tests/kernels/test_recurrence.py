"""The engine: generated recurrences against the reference loop."""

from __future__ import annotations

import pytest
import torch
from recurrence_results import CELLS, COMPILER, H, I, inputs, is_compiled, make_engine, reference, results
from torch import Tensor

from anaphora import nn


@pytest.mark.parametrize("name", CELLS)
def test_gradcheck_on_the_generated_path(name: str) -> None:
    cell = CELLS[name]().double()
    for p in cell.parameters():
        p.data += 0.2 * torch.randn_like(p)
    x, initial = inputs(cell, torch.float64, 3, 4)
    names = list(dict(cell.named_parameters()))
    engine = make_engine(cell)
    lengths = torch.tensor([4, 2, 3])

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        start = 1 + len(initial)
        params = dict(zip(names, tensors[start:], strict=True))
        y, last = engine(params, (tensors[0],), (), tuple(tensors[1:start]), lengths, name == "lstm")
        return y, *last

    assert torch.autograd.gradcheck(run, (x, *initial, *cell.parameters()))
    assert is_compiled(engine) == COMPILER


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("path", ["compiled", "torch"])
def test_equals_the_reference(name: str, path: str) -> None:
    lengths = torch.tensor([5, 9, 0, 1, 9, 7, 3, 3, 8, 2, 6])
    # Layer norm over four numbers can enlarge rounding a hundredfold in float32; float64 shows the equality.
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 2e-4)):
        cell = CELLS[name]().to(dtype)
        x, initial = inputs(cell, dtype, 11, 9)
        engine = make_engine(cell)
        if path == "torch":
            engine.planned(dict(cell.named_parameters()), (x,), (), initial)
        for rest in ((None, False), (lengths, False), (lengths, True)):
            ours = results(engine, cell, x, initial, *rest)
            theirs = results(reference(cell), cell, x, initial, *rest)
            for a, b in zip(ours, theirs, strict=True):
                scale = max(1.0, float(b.detach().abs().max()))
                torch.testing.assert_close(a, b, atol=tolerance * scale, rtol=0)


@pytest.mark.parametrize(
    ("inputs", "hidden", "batch", "time"), [(1, 1, 1, 1), (7, 33, 9, 5), (40, 17, 23, 3), (5, 64, 1, 20)]
)
@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU])
def test_odd_sizes_and_strides(make: type[nn.Cell], inputs: int, hidden: int, batch: int, time: int) -> None:
    cell = make(inputs, hidden)
    wide = torch.randn(time, batch, 2 * inputs)
    x = wide[..., ::2].transpose(0, 1).requires_grad_()  # neither rows nor columns lie together
    initial = tuple(torch.randn(hidden, batch).t().requires_grad_() for _ in cell.state)
    ours = results(make_engine(cell), cell, x, initial)
    theirs = results(reference(cell), cell, x, initial)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


FUNCTIONS = (torch.exp, torch.tanh, torch.sigmoid, torch.relu, torch.abs, torch.nn.functional.silu)


class Through(nn.Cell):
    """Every function of the input, as one state each."""

    state = tuple(f.__name__ for f in FUNCTIONS)

    def setup(self, inputs: int, hidden: int) -> None:
        self.one = torch.nn.Parameter(torch.ones(()))

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """The states are zero, so they are read and never chosen."""
        found = [function(x) * self.one for function in FUNCTIONS]
        return tuple(torch.where(old > 1, old, new) for old, new in zip(states, found, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_everywhere_on_the_line(dtype: torch.dtype) -> None:
    """Our own exponential and its kin, from −∞ to ∞, at the joints of their pieces, and for what is no number."""
    special = [
        float("-inf"),
        -1e30,
        -104.1,
        -88.1,
        -0.625,
        -1e-30,
        0.0,
        0.62499,
        88.7,
        89.5,
        1e30,
        float("inf"),
    ]
    x = torch.cat((torch.linspace(-100, 95, 1999), torch.tensor([*special, float("nan")]))).to(dtype)
    cell = Through(len(x), len(x)).to(dtype)
    initial = tuple(torch.zeros(1, len(x), dtype=dtype) for _ in FUNCTIONS)
    with torch.no_grad():
        engine = make_engine(cell)
        _, last = engine(dict(cell.named_parameters()), (x[None, None],), (), initial)
    assert is_compiled(engine) == COMPILER
    exact = 4e-7 if dtype == torch.float32 else 1e-15
    for function, y in zip(FUNCTIONS, last, strict=True):
        torch.testing.assert_close(y[0], function(x), rtol=exact, atol=1e-38, equal_nan=True)


def test_states_that_share_a_gradient() -> None:
    """What a product sends back to two states at once, or to a state and the input, reaches both."""

    class Twins(nn.Cell):
        state = ("a", "b")

        def setup(self, inputs: int, hidden: int) -> None:
            self.w = nn.Affine(hidden, hidden, recurrent=0)

        def step(self, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            both = torch.tanh(self.w(a + b + x))
            return both, both

    class Sums(Twins):
        def step(self, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            return torch.tanh(self.w(a) + self.w(a * b) + a + b), self.w(a + b) + a

    for made in (Twins, Sums):
        cell = made(H, H).double()
        x, initial = inputs(cell, torch.float64, 3, 4)
        engine = make_engine(cell)
        theirs = results(reference(cell), cell, x, initial)
        for a, b in zip(results(engine, cell, x, initial), theirs, strict=True):
            torch.testing.assert_close(a, b)
        assert is_compiled(engine) == COMPILER


def test_the_gradient_may_come_for_a_last_state_alone() -> None:
    cell = nn.LSTM(I, H).double()
    x, initial = inputs(cell, torch.float64, 4, 5)
    lengths = torch.tensor([5, 0, 2, 3])
    params = dict(cell.named_parameters())
    for k in range(2):
        found = []
        for run in (make_engine(cell), reference(cell)):
            _, last = run(params, (x,), (), initial, lengths)
            found.append(torch.autograd.grad(last[k].square().sum(), [x, *initial, *params.values()]))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b)


def test_frozen_weights_and_partial_gradients() -> None:
    cell = nn.LSTM(I, H).double()
    x, initial = inputs(cell, torch.float64, 3, 4)
    whole = results(make_engine(cell), cell, x, initial)
    cell.gates.weights[0].requires_grad_(False)
    y, last = make_engine(cell)(dict(cell.named_parameters()), (x.detach(),), (), initial)
    torch.manual_seed(11)
    loss = (y * torch.randn_like(y)).sum() + sum((s * torch.randn_like(s)).sum() for s in last)
    grads = torch.autograd.grad(loss, [*initial, cell.gates.bias, cell.gates.weights[1]])
    wanted = dict(zip(["x", "h", "c", *dict(cell.named_parameters())], whole[3:], strict=True))
    expected = [wanted["h"], wanted["c"], wanted["gates.bias"], wanted["gates.weights.1"]]
    for a, b in zip(grads, expected, strict=True):
        torch.testing.assert_close(a, b)
