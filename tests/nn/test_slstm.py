"""sLSTM against the published equations without a stabiliser, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anaphora import nn
from anaphora.native import c as compiler

pytestmark = pytest.mark.usefixtures("quick_compiler")
I, H, HEADS, T = 3, 6, 2, 7


def _made() -> nn.Recurrent:
    torch.manual_seed(0)
    layer = nn.Recurrent(nn.SLSTM(I, H, heads=HEADS)).double()
    for p in layer.parameters():
        p.data += 0.3 * torch.randn_like(p)
    return layer


def _loop(layer: nn.Recurrent, x: Tensor) -> Tensor:
    """x ``(B, T, I)``: h ``(B, T, H)`` by Beck et al. 2024, eqs. 8 to 14."""
    cell, rows = layer.cells[0], []
    weights = torch.cat((cell.content.weights[0], cell.gates.weights[0]))  # type: ignore[union-attr, index]
    bias = torch.cat((cell.content.bias, cell.gates.bias))  # type: ignore[union-attr]
    for row in x:
        h, c, n, found = row.new_zeros(H), row.new_zeros(H), row.new_zeros(H), []
        for xt in row:
            mixed = torch.einsum("gkij,kj->gki", cell.mixing, h.view(HEADS, -1)).reshape(4 * H)  # type: ignore[arg-type]
            z, o, i, f = (weights @ xt + bias + mixed).chunk(4)
            c = torch.sigmoid(f) * c + torch.exp(i) * torch.tanh(z)
            n = torch.sigmoid(f) * n + torch.exp(i)
            h = torch.sigmoid(o) * c / n
            found.append(h)
        rows.append(torch.stack(found))
    return torch.stack(rows)


def test_outputs_and_gradients_equal_the_equations() -> None:
    layer, x = _made(), torch.randn(2, T, I, dtype=torch.float64, requires_grad=True)
    found, expected = layer(x)[0], _loop(layer, x)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    leaves, weights = [x, *layer.parameters()], torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), leaves),
        torch.autograd.grad((expected * weights).sum(), leaves),
        rtol=1e-9,
        atol=1e-11,
    )


def test_gradcheck() -> None:
    layer, x = _made(), torch.randn(2, 4, I, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x, torch.tensor([4, 2]))[0], (x,))


@pytest.mark.skipif(compiler.compiler() is None, reason="torch's functions round by the number of rows")
def test_steps_pieces_and_lengths_have_the_bits_of_the_whole() -> None:
    layer, x = _made().eval(), torch.randn(3, T, I, dtype=torch.float64)
    with torch.no_grad():
        whole, last = layer(x)
        first, state = layer(x[:, :3])
        second, state = layer(x[:, 3:], initial=state)
        assert torch.equal(torch.cat((first, second), 1), whole)
        assert all(torch.equal(a, b) for a, b in zip(state, last, strict=True))
        state = layer.initial_state(3, x)
        for t, xt in enumerate(x.unbind(1)):
            y, state = layer.step(xt, state)
            assert torch.equal(y, whole[:, t])
        ragged, ends = layer(x, torch.tensor([T, 2, 5]))
        assert torch.equal(ragged[1, :2], whole[1, :2])
        assert not ragged[1, 2:].any()
        short = layer(x[2:, :5])[1]
        assert all(torch.equal(a[0, 2], b[0, 0]) for a, b in zip(ends, short, strict=True))


@pytest.mark.parametrize("shift", [200.0, -200.0])
def test_gates_that_overflow_without_the_stabiliser(shift: float) -> None:
    """e^±200 has no float32; a common factor of all input gates changes nothing but rounding."""
    layer, x = _made().float(), torch.randn(2, 50, I)
    with torch.no_grad():
        expected = layer(x)[0]
        layer.cells[0].gates.bias[:H] += shift  # type: ignore[union-attr, index, operator]
        found = layer(x)[0]
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="6 units cannot be divided among 4 heads"):
        nn.SLSTM(3, 6, heads=4)
    with pytest.raises(ValueError, match="even number of inputs"):
        nn.SLSTM(3, 6, halves=True)
