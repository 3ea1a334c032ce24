"""Weights of linear recurrences sum up to what their layers compute; eigenvalues are those of the step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora import nn
from anaphora.errors import AnaphoraError
from anaphora.nn import inside, linear
from anaphora.probe.recurrence import FOREVER, contributions, matrix_weights, recurrence_arrays, spectrum

LINES = ["the cat sat", "a cat ran", "the dog sat"] * 4
SMALL = {"hidden": 8, "embedding": 8, "steps": 2, "valid_every": 2, "save_every": 2, "lines": True}
T, W = 12, 16


def looked(layer: torch.nn.Module, x: torch.Tensor) -> dict[str, np.ndarray]:
    found = recurrence_arrays(layer, lambda: layer(x)[0], x.shape[1])
    return {name: array.values for name, array in found.items()}


@pytest.mark.parametrize(
    "kind",
    [
        linear.RetNet,
        linear.GLA,
        linear.Mamba2,
        linear.MLSTM,
        linear.DeltaNet,
        linear.GatedDeltaNet,
        linear.RWKV7,
    ],
)
def test_weights_times_values_are_what_is_read(kind, monkeypatch):
    """Softmax attention is a matrix times values; so is a linear recurrence, and its matrix is the one shown."""
    torch.manual_seed(0)
    layer, x = kind(W, 2), torch.randn(1, T, W)
    read = []
    scan = linear.layer.matrix_scan
    monkeypatch.setattr(linear.layer, "matrix_scan", lambda *a: (read.append(scan(*a)), read[-1])[1])
    with torch.no_grad(), inside.record() as notes:
        layer(x)
    values = next(note.value for note in notes if note.name == "values")
    weights = looked(layer, x)["layer1_weights"]
    assert weights.shape == (2, T, T)
    assert not np.triu(weights, 1).any()
    found = np.einsum("nts,snd->tnd", weights, values[0].numpy())
    np.testing.assert_allclose(found, read[0][0][0].numpy(), atol=1e-5, rtol=1e-5)


def test_weights_of_rwkv4_are_those_of_its_mean():
    """Where all channels decay alike and have the same keys, the mean over channels is the matrix itself."""
    torch.manual_seed(0)
    layer, x = linear.RWKV4(W), torch.randn(1, T, W)
    cell = layer.recurrent.cells[0]
    with torch.no_grad():
        cell.decay.fill_(-1.0)
        cell.first.fill_(0.3)
        layer.key.weight.copy_(layer.key.weight[:1].expand(W, W))
    read = []
    layer.output.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    layer.receive.register_forward_hook(lambda *_: torch.full((1, T, W), 40.0))  # σ is 1
    with torch.no_grad(), inside.record() as notes:
        layer(x)
    values = next(note.value for note in notes if note.name == "values")
    shown = looked(layer, x)
    weights = shown["layer1_weights"]
    np.testing.assert_allclose(weights[0].sum(1), 1, atol=1e-6)
    assert not np.triu(weights[0], 1).any()
    np.testing.assert_allclose(weights[0] @ values[0].numpy(), read[0][0].numpy(), atol=1e-5)
    np.testing.assert_allclose(shown["layer1_memory"], np.e, rtol=1e-5)
    assert "layer2_weights" not in shown


def test_contributions_sum_up_to_the_states():
    torch.manual_seed(0)
    layer, x = nn.Recurrent(nn.MinGRU(3, 5)), torch.randn(1, T, 3)
    z, new = layer.cells[0].both(x[0]).chunk(2, -1)
    a, b = 1 - torch.sigmoid(z), torch.sigmoid(z) * new
    y = layer(x)[0][0]
    for t, parts in enumerate(contributions(a, b)):
        torch.testing.assert_close(parts.sum(0), y[t], atol=1e-6, rtol=1e-5)
        assert not parts[t + 1 :].any()
    found = looked(layer, x)
    np.testing.assert_allclose(found["layer1_spectrum"][0], a.mean(0).detach(), atol=1e-6)
    assert not found["layer1_spectrum"][1].any()
    last = torch.stack([p.norm(dim=-1) for p in contributions(a, b)])
    np.testing.assert_allclose(found["layer1_weights"][0], last.detach(), atol=1e-5)


def test_a_signed_delta_rule_has_negative_eigenvalues():
    """I − β k kᵀ with β near 2 reflects: one eigenvalue of each head is 1 − β, the others are 1."""
    layer, x = linear.DeltaNet(W, 2, signed=True), torch.randn(1, T, W)
    with torch.no_grad():
        layer.write.bias.fill_(20.0)
    real = looked(layer, x)["layer1_spectrum"][0]
    assert np.isclose(real, -1, atol=1e-4).sum() + np.isclose(real, 1, atol=1e-4).sum() > 0
    with inside.record() as notes, torch.no_grad():
        layer(x)
    noted = {note.name: note.value[0] for note in notes}
    change = torch.eye(W // 2) + noted["put"][..., None] * noted["removed"][..., None, :]
    assert torch.linalg.eigvals(change).real.min() == pytest.approx(-1, abs=1e-4)


def test_a_complex_cell_shows_its_circle():
    torch.manual_seed(0)
    cell = nn.LRU(3, 6)
    found = looked(nn.Recurrent(cell), torch.randn(1, T, 3))
    size = torch.exp(-torch.exp(cell.nu)).detach().numpy()
    real, imaginary = found["layer1_spectrum"]
    np.testing.assert_allclose(np.sort(np.hypot(real, imaginary)), np.sort(np.repeat(size, 2)), atol=1e-5)
    np.testing.assert_allclose(
        np.sort(found["layer1_memory"]), np.sort(np.repeat(-1 / np.log(size), 2)), rtol=1e-4
    )
    assert "layer1_weights" not in found


def test_both_directions_and_layers_count():
    layer = nn.Recurrent(nn.MinGRU(3, 4), layers=2, bidirectional=True)
    found = looked(layer, torch.randn(1, T, 3))
    assert sorted(name for name in found if name.endswith("weights")) == [
        f"layer{n}_{way}_weights" for n in (1, 2) for way in ("backward", "forward")
    ]
    assert not np.triu(found["layer1_forward_weights"][0], 1).any()
    assert not np.tril(found["layer1_backward_weights"][0], -1).any()  # reads from the end
    assert not looked(nn.Recurrent(nn.LSTM(3, 4)), torch.randn(1, T, 3))


def test_memory_times():
    values = torch.tensor([[0.5, 1.0, 0.0], [0.5, 1.0, 0.0]], dtype=torch.complex64)
    _, memory = spectrum(values)
    assert memory[0] == pytest.approx(1 / math.log(2), rel=1e-5)
    assert memory[1] == pytest.approx(FOREVER)
    assert memory[2] < 0.02


def test_weights_of_the_operator_with_a_decay_of_zero():
    r = k = torch.ones(1, 3, 1, 1)
    log_w = torch.tensor([0.0, -math.inf, math.log(0.5)]).view(1, 3, 1)
    expected = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0.5, 1]])
    torch.testing.assert_close(matrix_weights(r, k, log_w)[0, 0], expected)


@pytest.mark.parametrize("preset", ["mingru", "mamba", "griffin", "xlstm"])
def test_views_of_a_language_model(preset):
    more = {"layers": 3, "local_window": 4} if preset == "griffin" else {"layers": 1}
    model = an.LanguageModel(preset, **SMALL, **more).fit(LINES, valid=LINES[:2])
    trace = model.probe("the cat", what=("recurrence",))
    assert trace.arrays["layer1_weights"].values.shape[1:] == (8, 8)
    assert "channels" in trace.view("spectrum").text(100, colour=False)
    shown = trace.view("weights").text(100, colour=False)
    assert ("softmax" in shown) == (preset == "griffin")
    assert "Head 1 of layer 1" in trace.view("weights", layer=1, head=1).text(100, colour=False)
    with pytest.raises(AnaphoraError, match="not 9"):
        trace.view("weights", layer=9)


def test_a_model_without_says_so():
    model = an.LanguageModel("lstm", **SMALL).fit(LINES, valid=LINES[:2])
    with pytest.raises(AnaphoraError, match="no linear recurrence"):
        model.probe("the cat", what=("recurrence",)).view("spectrum")
