"""Gradients over time against known answers: linear networks, finite differences, the chain rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.nn import Cell, Recurrent
from anaphora.nn.embedding import Embedding
from anaphora.probe.gradients import input_gradients, jacobian_norms, state_gradients


class Linear(Cell):
    """h_t = W h_{t−1} + U x_t."""

    state = ("h",)

    def setup(self, inputs, hidden):
        self.both = an.nn.Affine(inputs, hidden, hidden)

    def step(self, x, h):
        return self.both(x, h)


@pytest.fixture(params=[0.7, 1.0, 1.3])
def rotation(request):
    """A linear network whose recurrent matrix is ρ times a rotation: every gradient scales by ρ at each step."""
    torch.manual_seed(0)
    recurrent = Recurrent(Linear(3, 6)).double()
    turn, _ = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))
    weights = recurrent.cells[0].recurrent_weights()
    with torch.no_grad():
        (weight,) = weights.values()
        weight.copy_(request.param * turn)
    return recurrent, request.param


def last_unit(y, last=None):
    """L_t = y_t · a with a fixed a, so ‖∂L_t/∂h_t‖ = ‖a‖."""
    return y[0] @ torch.arange(1.0, y.shape[-1] + 1, dtype=y.dtype)


def test_a_linear_network_follows_its_spectral_radius(rotation):
    recurrent, radius = rotation
    found = state_gradients(recurrent, torch.randn(1, 40, 3, dtype=torch.float64), last_unit)
    length = float(np.linalg.norm(np.arange(1.0, 7.0)))
    lags = np.subtract.outer(np.arange(40), np.arange(40))
    expected = np.where(lags >= 0, length * radius ** np.maximum(lags, 0).astype(float), 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_jacobians_of_a_linear_network_are_its_matrix(rotation):
    recurrent, radius = rotation
    own, products = jacobian_norms(recurrent, torch.randn(1, 12, 3, dtype=torch.float64))
    np.testing.assert_allclose(own, radius, rtol=1e-9)
    np.testing.assert_allclose(products, radius ** np.arange(11, -1, -1.0), rtol=1e-9)


def test_products_never_exceed_the_product_of_norms():
    torch.manual_seed(1)
    recurrent = Recurrent(an.nn.LSTM(4, 5), layers=2).double()
    own, products = jacobian_norms(recurrent, torch.randn(1, 9, 4, dtype=torch.float64))
    bound = np.append(np.cumprod(own[1:][::-1])[::-1], 1.0)
    assert (products <= bound + 1e-12).all()
    assert products[0] < bound[0]  # two different matrices seldom stretch the same direction


@pytest.mark.parametrize("cell", [an.nn.Elman, an.nn.LSTM, an.nn.GRU])
def test_state_gradients_against_finite_differences(cell):
    torch.manual_seed(2)
    recurrent = Recurrent(cell(3, 4), layers=2).double().eval()
    x = torch.randn(1, 5, 3, dtype=torch.float64)
    found = state_gradients(recurrent, x, last_unit)
    state = recurrent.initial_state(1, x)
    for now in x[:, :2].unbind(1):
        _, state = recurrent.step(now, state)

    def loss(flat):
        """L_4 as a function of the whole state after the second step."""
        at = tuple(flat.view(len(state), 2, 1, 4).unbind(0))
        for now in x[:, 2:].unbind(1):
            _, at = recurrent.step(now, at)
        return float(at[0][-1][0] @ torch.arange(1.0, 5.0, dtype=torch.float64))

    flat = torch.stack(state).reshape(-1)
    with torch.no_grad():
        eps = 1e-6
        slopes = [
            (loss(flat + eps * unit) - loss(flat - eps * unit)) / (2 * eps)
            for unit in torch.eye(flat.numel(), dtype=torch.float64)
        ]
    assert found[4, 1] == pytest.approx(np.linalg.norm(slopes), rel=1e-6)


def test_input_gradients_of_a_causal_model_stop_at_the_present():
    torch.manual_seed(3)
    embedding, recurrent = Embedding(7, 3), Recurrent(an.nn.GRU(3, 4))
    symbols = torch.tensor([[1, 2, 3, 4, 5, 6]])
    found = input_gradients(
        embedding, lambda: recurrent(embedding(symbols))[0], lambda y: y[0].square().sum(-1)
    )
    assert found.shape == (6, 6)
    assert np.all(found[np.triu_indices(6, 1)] == 0)
    assert np.all(found[np.tril_indices(6)] > 0)


def test_input_gradients_equal_autograds_own():
    torch.manual_seed(4)
    embedding, layer = Embedding(5, 3), nn.Linear(3, 2)
    symbols = torch.tensor([[1, 4, 2]])
    found = input_gradients(embedding, lambda: layer(embedding(symbols)), lambda y: y[0].sum(-1))
    assert np.diag(found) == pytest.approx([float(layer.weight.detach().sum(0).norm())] * 3, rel=1e-6)


def test_what_cannot_be_unrolled_says_so():
    both = Recurrent(an.nn.LSTM(2, 3), bidirectional=True)
    with pytest.raises(AnaphoraError, match="both directions"):
        state_gradients(both, torch.randn(1, 4, 2), last_unit)
    with pytest.raises(AnaphoraError, match="too many"):
        state_gradients(Recurrent(an.nn.LSTM(2, 3)), torch.randn(1, 600, 2), last_unit)
    with pytest.raises(AnaphoraError, match="too wide"):
        jacobian_norms(Recurrent(an.nn.LSTM(2, 600)), torch.randn(1, 4, 2))
