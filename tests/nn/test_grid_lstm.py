"""The two-dimensional LSTM equals a plain double loop over the places, with gradients, in C and in torch operations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from anaphora.nn import inside
from anaphora.nn.grid_lstm import GridLSTM
from anaphora.ops import grid
from anaphora.ops.grid import by_torch

SHAPES = [(3, 4, 5, 3, 6), (9, 5, 2, 4, 19), (1, 1, 1, 2, 1), (2, 1, 6, 2, 3), (17, 3, 3, 2, 33)]


def double_loop(layer: GridLSTM, x: Tensor) -> Tensor:
    """The definition: one place after the other."""
    batch, rows, columns, _ = x.shape
    weights, biases = layer.weight.chunk(len(layer.directions)), layer.bias.chunk(len(layer.directions))
    found = []
    for k, (bottom, right) in enumerate(layer.directions):
        states: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        nothing = (x.new_zeros(batch, layer.hidden),) * 2
        up, left = layer.recurrent[k]
        for i in range(rows)[::-1] if bottom else range(rows):
            for j in range(columns)[::-1] if right else range(columns):
                h_up, c_up = states.get((i + 1 if bottom else i - 1, j), nothing)
                h_left, c_left = states.get((i, j + 1 if right else j - 1), nothing)
                a = x[:, i, j] @ weights[k].T + h_up @ up.T + h_left @ left.T + biases[k]
                enter, keep_up, keep_left, out, new = a.chunk(5, -1)
                c = keep_up.sigmoid() * c_up + keep_left.sigmoid() * c_left + enter.sigmoid() * new.tanh()
                states[i, j] = out.sigmoid() * c.tanh(), c
        found.append(torch.stack([states[i, j][0] for i in range(rows) for j in range(columns)], 1))
    return torch.cat(found, -1).view(batch, rows, columns, -1)


def case(shape: tuple[int, ...], directions: int, dtype: torch.dtype) -> tuple[GridLSTM, Tensor]:
    batch, rows, columns, inputs, hidden = shape
    layer = GridLSTM(inputs, hidden, directions=directions).to(dtype)
    torch.nn.init.normal_(layer.bias)
    return layer, torch.randn(batch, rows, columns, inputs, dtype=dtype, requires_grad=True)


def gradients(y: Tensor, layer: GridLSTM, x: Tensor) -> list[Tensor]:
    weights = torch.sin(torch.arange(y.numel(), dtype=y.dtype)).view_as(y)
    wanted = [x, *layer.parameters()]
    found = torch.autograd.grad((y * weights).sum(), wanted, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True)]


@pytest.mark.parametrize("directions", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_it_equals_a_double_loop_with_its_gradients(shape, directions, dtype, close) -> None:
    layer, x = case(shape, directions, dtype)
    expected = double_loop(layer, x)
    y, ends = layer(x)
    torch.testing.assert_close(y, expected, rtol=0, atol=close)
    for mine, theirs in zip(gradients(y, layer, x), gradients(expected, layer, x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=close, atol=close)
    with torch.no_grad():
        assert torch.equal(layer(x)[0], y)
    assert torch.equal(ends[0], y[:, -1, -1, : layer.hidden])


@pytest.mark.parametrize("directions", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_torch_operations_give_the_same(shape, directions) -> None:
    layer, x = case(shape, directions, torch.float64)
    pre = torch.nn.functional.linear(x, layer.weight, layer.bias).unflatten(-1, (directions, -1))
    y = by_torch(pre, layer.recurrent, layer.directions).flatten(3)
    expected = double_loop(layer, x)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-10)
    for mine, theirs in zip(gradients(y, layer, x), gradients(expected, layer, x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)


def test_without_a_compiler_torch_does_the_work(monkeypatch) -> None:
    layer, x = case((2, 3, 4, 2, 5), 4, torch.float64)
    expected = layer(x)[0]
    monkeypatch.setattr(grid.library, "functions", lambda *_: None)
    torch.testing.assert_close(layer(x)[0], expected)


@pytest.mark.parametrize("directions", [1, 2, 4])
def test_gradients_are_those_of_finite_differences(directions) -> None:
    layer, x = case((2, 3, 2, 2, 3), directions, torch.float64)
    parameters = tuple(layer.parameters())

    def run(x: Tensor, *values: Tensor) -> Tensor:
        named = dict(zip(dict(layer.named_parameters()), values, strict=True))
        return torch.func.functional_call(layer, named, (x,))[0]

    assert torch.autograd.gradcheck(run, (x, *parameters))


def test_one_place_by_hand() -> None:
    """All weights 0 but the candidate's bias: i = f = o = ½, c = ½ tanh(b) at the corner; further on each cell is that
    and half of both neighbours."""
    layer = GridLSTM(1, 1, directions=1).double()
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    with torch.no_grad():
        layer.bias[4] = 1.0
    y, _ = layer(torch.zeros(1, 2, 2, 1, dtype=torch.float64))
    corner = 0.5 * math.tanh(1)
    beside = corner + 0.5 * corner
    last = corner + 0.5 * beside + 0.5 * beside
    cells = [[corner, beside], [beside, last]]
    expected = [[0.5 * math.tanh(c) for c in row] for row in cells]
    torch.testing.assert_close(y[0, :, :, 0], torch.tensor(expected, dtype=torch.float64))


def test_a_picture_does_not_depend_on_its_batch_or_on_threads() -> None:
    layer, x = case((21, 4, 5, 3, 20), 4, torch.float32)
    with torch.no_grad():
        together = layer(x)[0]
        # The products of the inputs are torch's, whose bits may depend on how many there are.
        alone = torch.cat([layer(row[None])[0] for row in x])
    torch.testing.assert_close(together, alone)
    before = torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        y, _ = layer(x)
        found.append([y, *gradients(y, layer, x)])
    torch.set_num_threads(before)
    for one, three in zip(*found, strict=True):
        torch.testing.assert_close(one, three, rtol=1e-6, atol=1e-6)


def test_each_direction_sees_what_lies_behind_it() -> None:
    """A change in one place reaches exactly the places further along."""
    layer, x = case((1, 3, 4, 2, 5), 4, torch.float64)
    changed = x.detach().clone()
    changed[0, 1, 2] += 1.0
    moved = (layer(x)[0] != layer(changed)[0]).view(3, 4, 4, 5).any(-1)
    i, j = torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")
    for k, reached in enumerate(
        [(i >= 1) & (j >= 2), (i >= 1) & (j <= 2), (i <= 1) & (j >= 2), (i <= 1) & (j <= 2)]
    ):
        assert torch.equal(moved[:, :, k], reached)


def test_where_each_direction_ends() -> None:
    layer, x = case((2, 3, 4, 2, 5), 4, torch.float64)
    y, ends = layer(x)
    corners = [y[:, -1, -1], y[:, -1, 0], y[:, 0, -1], y[:, 0, 0]]
    for k, corner in enumerate(corners):
        assert torch.equal(ends[k], corner[:, 5 * k : 5 * k + 5])


def test_a_graph_can_be_gone_back_through_twice() -> None:
    layer, x = case((2, 9, 9, 8, 32), 2, torch.float32)  # large enough for memory that is used again
    y, _ = layer(x)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    layer(x.detach())[0].sum().backward()
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], first, rtol=0, atol=0)


def test_states_are_noted_and_wrong_shapes_refused() -> None:
    layer, x = case((2, 3, 4, 2, 5), 2, torch.float32)
    with inside.record() as notes:
        y, _ = layer(x)
    (note,) = notes
    assert note.name == "states"
    assert torch.equal(note.value, y.flatten(1, 2))
    with pytest.raises(ValueError, match=r"must be \(batch, rows, columns, 2\)"):
        layer(torch.zeros(2, 3, 2))
    with pytest.raises(ValueError, match="1, 2 or 4 directions, not 3"):
        GridLSTM(2, 3, directions=3)
