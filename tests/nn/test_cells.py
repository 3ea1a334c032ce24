"""Each cell against its equations written out by hand, and the facts the lectures state about them."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora import nn

B, T, I, H = 4, 7, 5, 6
Loop = list[tuple[Tensor, ...]]


def _w(affine: nn.Affine) -> list[Tensor]:
    return [*affine.weights, affine.bias]


def lstm(cell: nn.LSTM, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    w, u, b = _w(cell.gates)
    i, f, g, o = (x @ w.T + h @ u.T + b).split(H, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def no_forget(cell: nn.LSTM, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    w, u, b = _w(cell.gates)
    i, g, o = (x @ w.T + h @ u.T + b).split(H, -1)
    c = c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def coupled(cell: nn.LSTM, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    w, u, b = _w(cell.gates)
    f, g, o = (x @ w.T + h @ u.T + b).split(H, -1)
    f = torch.sigmoid(f)
    c = f * c + (1 - f) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def peephole(cell: nn.LSTM, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    w, u, b = _w(cell.gates)
    i, f, g, o = (x @ w.T + h @ u.T + b).split(H, -1)
    p = cell.peepholes
    old = c
    c = torch.sigmoid(f + p["forget"] * old) * old + torch.sigmoid(i + p["input"] * old) * torch.tanh(g)
    return torch.sigmoid(o + p["output"] * c) * torch.tanh(c), c


def _norm(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + 1e-5).sqrt()


def layer_norm(cell: nn.LSTM, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    a = _norm(x @ cell.input.weights[0].T) * cell.norm_input.weight + cell.norm_input.bias
    a = a + _norm(h @ cell.recurrent.weights[0].T) * cell.norm_recurrent.weight
    i, f, g, o = a.split(H, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(_norm(c) * cell.norm_cell.weight + cell.norm_cell.bias), c


def gru_before(cell: nn.GRU, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    w, u, b = _w(cell.gates)
    r, z = torch.sigmoid(x @ w.T + h @ u.T + b).split(H, -1)
    w, u, b = _w(cell.candidate)
    return ((1 - z) * h + z * torch.tanh(x @ w.T + (r * h) @ u.T + b),)


def mgu(cell: nn.MGU, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    w, u, b = _w(cell.forget)
    f = torch.sigmoid(x @ w.T + h @ u.T + b)
    w, u, b = _w(cell.candidate)
    return ((1 - f) * h + f * torch.tanh(x @ w.T + (f * h) @ u.T + b),)


def simple_gru(cell: nn.SimpleGRU, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    w, u, b = _w(cell.both)
    z, new = (x @ w.T + h @ u.T + b).split(H, -1)
    z = torch.sigmoid(z)
    return ((1 - z) * h + z * torch.tanh(new),)


def elman(cell: nn.Elman, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    w, u, b = _w(cell.affine)
    return (torch.tanh(torch.cat((x, h), -1) @ torch.cat((w, u), 1).T + b),)  # the [W|U][x; h] form


def relu(cell: nn.Elman, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    w, u, b = _w(cell.affine)
    return ((x @ w.T + h @ u.T + b).clamp(min=0),)


CELLS = {
    "elman": (lambda: nn.Elman(I, H), elman),
    "relu": (lambda: nn.Elman(I, H, activation="relu"), relu),
    "irnn": (lambda: nn.IRNN(I, H), relu),
    "lstm": (lambda: nn.LSTM(I, H), lstm),
    "no forget": (lambda: nn.LSTM(I, H, forget=False), no_forget),
    "coupled": (lambda: nn.LSTM(I, H, coupled=True), coupled),
    "peephole": (lambda: nn.LSTM(I, H, peephole=True), peephole),
    "layer norm": (lambda: nn.LSTM(I, H, layer_norm=True), layer_norm),
    "gru before": (lambda: nn.GRU(I, H), gru_before),
    "simple gru": (lambda: nn.SimpleGRU(I, H), simple_gru),
    "mgu": (lambda: nn.MGU(I, H), mgu),
}


def _randomised(cell: nn.Cell) -> nn.Cell:
    """Parameters that start at zero or one would hide mistakes."""
    for p in cell.parameters():
        p.data += 0.3 * torch.randn_like(p)
    return cell


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_cell_equals_its_equations(name: str, dtype: torch.dtype, tolerance: float) -> None:
    make, equations = CELLS[name]
    cell = _randomised(make()).to(dtype)
    recurrent = nn.Recurrent(cell)
    x = torch.randn(B, T, I, dtype=dtype, requires_grad=True)
    initial = tuple(torch.randn(1, B, H, dtype=dtype, requires_grad=True) for _ in cell.state)
    lengths = torch.tensor([7, 3, 5, 1])

    states, rows = [tuple(s[0, b : b + 1] for s in initial) for b in range(B)], []
    for b in range(B):
        outputs = []
        for t in range(int(lengths[b])):
            states[b] = equations(cell, x[b : b + 1, t], *states[b])
            outputs.append(states[b][0])
        rows.append(F.pad(torch.cat(outputs), (0, 0, 0, T - len(outputs))))
    y_loop = torch.stack(rows)
    last_loop = [torch.cat([s[k] for s in states]) for k in range(len(initial))]

    y, last = recurrent(x, lengths, initial)
    leaves = [x, *initial, *cell.parameters()]
    weight = torch.randn_like(y)
    ends = [torch.randn_like(s) for s in last_loop]
    ours = (y * weight).sum() + sum((s[0] * e).sum() for s, e in zip(last, ends, strict=True))
    theirs = (y_loop * weight).sum() + sum((s * e).sum() for s, e in zip(last_loop, ends, strict=True))
    torch.testing.assert_close(y, y_loop, atol=tolerance, rtol=tolerance)
    for s, t in zip(last, last_loop, strict=True):
        torch.testing.assert_close(s[0], t, atol=tolerance, rtol=tolerance)
    for a, b in zip(torch.autograd.grad(ours, leaves), torch.autograd.grad(theirs, leaves), strict=True):
        torch.testing.assert_close(a, b, atol=10 * tolerance, rtol=10 * tolerance)


def test_the_cell_state_without_forget_gate_carries_the_gradient_unchanged() -> None:
    """c_t = c_{t−1} + i∘c̃: ∂c_t/∂c_{t−1} = 1 along the direct path, exactly (gates see h, not c)."""
    cell = nn.LSTM(I, H, forget=False).double()
    x, h = torch.randn(1, I).double(), torch.randn(1, H).double()
    jacobian = torch.autograd.functional.jacobian(lambda c: cell.step(x, h, c)[1], torch.randn(1, H).double())
    torch.testing.assert_close(jacobian[0, :, 0], torch.eye(H).double(), atol=0, rtol=0)

    # Over many steps, with the path through h cut, it is still the identity.
    def far(c: Tensor) -> Tensor:
        for _ in range(50):
            c = cell.step(x, h, c)[1]
        return c

    jacobian = torch.autograd.functional.jacobian(far, torch.randn(1, H).double())
    torch.testing.assert_close(jacobian[0, :, 0], torch.eye(H).double(), atol=0, rtol=0)


@pytest.mark.parametrize("scale", [0.5, 0.9, 1.3])
def test_the_gradient_of_an_elman_network_obeys_the_lectures_bound(scale: float) -> None:
    """‖∂h_t/∂h_k‖ ≤ (γ_w γ_g)^{t−k}: γ_w the largest singular value of U, γ_g = 1 for tanh."""
    cell = nn.Elman(I, H).double()
    with torch.no_grad():
        cell.affine.weights[1].copy_(scale * torch.randn(H, H).double() / H**0.5)
    largest = torch.linalg.matrix_norm(cell.affine.weights[1], 2)
    recurrent = nn.Recurrent(cell)
    x = torch.randn(1, 12, I).double()
    for steps in (1, 4, 12):
        norm = torch.linalg.matrix_norm(
            torch.autograd.functional.jacobian(
                lambda h, steps=steps: recurrent(x[:, :steps], initial=(h[None],))[0][0, -1],
                0.3 * torch.randn(1, H).double(),
            )[:, 0],
            2,
        )
        assert norm <= largest**steps * (1 + 1e-12)


def test_an_lstm_has_four_times_the_parameters_of_an_elman_network() -> None:
    def count(cell: nn.Cell) -> int:
        return sum(p.numel() for p in cell.parameters())

    assert count(nn.LSTM(I, H)) == 4 * count(nn.Elman(I, H))
    assert count(nn.GRU(I, H)) == 3 * count(nn.Elman(I, H))


def test_initialisation() -> None:
    cell = nn.LSTM(I, H, forget_bias=2.5)
    for block in cell.gates.weights[1].detach().chunk(4):
        torch.testing.assert_close(block @ block.T, torch.eye(H))
    expected = torch.zeros(4 * H)
    expected[H : 2 * H] = 2.5
    torch.testing.assert_close(cell.gates.bias.detach(), expected, atol=0, rtol=0)
    bound = (6 / (I + H)) ** 0.5
    assert cell.gates.weights[0].abs().max() <= bound
    assert torch.equal(nn.IRNN(I, H).affine.weights[1], torch.eye(H))
    assert torch.equal(nn.LSTM(I, H, layer_norm=True).norm_input.bias[H : 2 * H], torch.ones(H))


def test_an_affine_map_of_three_inputs() -> None:
    affine = nn.Affine(2, 3, 4, 5)
    a, b, c = torch.randn(6, 2), torch.randn(6, 3), torch.randn(6, 4)
    joined = torch.cat(tuple(affine.weights), 1)
    torch.testing.assert_close(affine(a, b, c), torch.cat((a, b, c), 1) @ joined.T + affine.bias)
    with pytest.raises(ValueError, match="called with 2"):
        affine(a, b)


def test_a_shortcut_through_time_sees_k_steps_back() -> None:
    cell = nn.Shortcut(2, 3, cell=nn.Elman, by=3).double()
    recurrent = nn.Recurrent(cell)
    x = torch.randn(2, 8, 2).double()
    h = [torch.zeros(2, 3).double()] * 3
    for t in range(8):
        h.append(torch.tanh(cell.inner.affine(torch.cat((x[:, t], h[-3]), 1), h[-1])))
    y, last = recurrent(x)
    torch.testing.assert_close(y, torch.stack(h[3:], 1))
    torch.testing.assert_close(last[2][0], h[-3])


def test_wrong_options_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="reset must be"):
        nn.GRU(2, 3, reset="never")
    with pytest.raises(ValueError, match="coupled gates need"):
        nn.LSTM(2, 3, forget=False, coupled=True)
    with pytest.raises(TypeError, match="peepholes"):
        nn.LSTM(2, 3, peepholes=True)
    with pytest.raises(ValueError, match="at least 2"):
        nn.Shortcut(2, 3, by=1)


def test_a_cell_can_be_copied_and_pickled_after_use() -> None:
    recurrent = nn.Recurrent(nn.GRU(I, H)).eval()
    x = torch.randn(B, T, I)
    with torch.no_grad():
        y, _ = recurrent(x)
        recurrent.step(x[:, 0], recurrent.initial_state(B, x))
        for twin in (copy.deepcopy(recurrent), pickle.loads(pickle.dumps(recurrent))):
            assert torch.equal(twin(x)[0], y)
