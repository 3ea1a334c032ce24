"""Muon: hidden matrices move along orthogonalised momentum, everything else as AdamW moves it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from training_toy import ToyModel, toy_settings

import anaphora as an
from anaphora.nn.embedding import Output
from anaphora.tasks.language.build import build_language
from anaphora.training.muon import COEFFICIENTS, hidden_matrices, orthogonal, orthogonalised
from anaphora.training.optimizers import build_optimizer, plain_step


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6), (3, 5, 9)])
def test_all_singular_values_come_near_one_and_directions_stay(shape):
    torch.manual_seed(1)
    given = torch.randn(shape)
    found = orthogonal(given)
    values = torch.linalg.svdvals(found)
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3
    u, _, v = torch.linalg.svd(given, full_matrices=False)
    polar = u @ v
    cosine = (found * polar).sum((-2, -1)) / found.norm(dim=(-2, -1)) / polar.norm(dim=(-2, -1))
    assert float(cosine.min()) > 0.97
    torch.testing.assert_close(orthogonal(1000 * given), found, atol=1e-4, rtol=1e-4)


def test_a_gradient_of_zeros_gives_no_step():
    assert not orthogonal(torch.zeros(3, 4)).any()


def newton_schulz(matrix):
    """The iteration written out on singular values, which it moves each by itself."""
    a, b, c = COEFFICIENTS
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / s.norm()
    for _ in range(5):
        s = a * s + b * s**3 + c * s**5
    return (u * s) @ v


def test_two_steps_of_a_matrix_written_out():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Tanh(), nn.Linear(6, 2))
    weight = model[0].weight.detach().double().clone()
    optimizer = build_optimizer(model, toy_settings(optimizer="muon", lr=0.1, weight_decay=0.5))
    momentum = torch.zeros(6, 4, dtype=torch.float64)
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        gradient = model[0].weight.grad.double()
        momentum = 0.95 * momentum + gradient
        step = 0.2 * math.sqrt(6) * newton_schulz(gradient + 0.95 * momentum)
        weight = weight * (1 - 0.1 * 0.5) - 0.1 * step
        plain_step(optimizer)
    torch.testing.assert_close(model[0].weight.detach().double(), weight, atol=1e-5, rtol=1e-5)


def test_the_rest_moves_as_adamw_moves_it():
    torch.manual_seed(0)
    muon, adamw = ToyModel(), ToyModel()
    adamw.load_state_dict(muon.state_dict())
    pair = [(m, build_optimizer(m, toy_settings(optimizer=k))) for m, k in ((muon, "muon"), (adamw, "adamw"))]
    for model, optimizer in pair:
        torch.manual_seed(3)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        plain_step(optimizer)
    assert list(hidden_matrices(muon)) == ["middle.weight"]
    for (name, a), b in zip(muon.named_parameters(), adamw.parameters(), strict=True):
        assert torch.equal(a, b) == (name != "middle.weight"), name


def test_gates_and_queries_keys_and_values_are_maps_of_their_own():
    lstm = build_language(an.LanguageModel(model="lstm", hidden=6, embedding=4).settings_, 9)
    assert hidden_matrices(lstm) == {
        "body.recurrent.cells.0.gates.weights.0": (6, 6, 6, 6),
        "body.recurrent.cells.0.gates.weights.1": (6, 6, 6, 6),
        "project.weight": (4,),
    }
    settings = an.LanguageModel(
        model="transformer", hidden=8, heads=4, kv_heads=2, layers=1, feedforward=5, activation="swiglu"
    ).settings_
    assert hidden_matrices(build_language(settings, 9)) == {
        "body.stack.layers.0.attention.inward.weight": (8, 4, 4),
        "body.stack.layers.0.attention.outward.weight": (8,),
        "body.stack.layers.0.feedforward.gated.weight": (5, 5),
        "body.stack.layers.0.feedforward.second.weight": (8,),
    }
    untied = build_language(an.LanguageModel(model="lstm", hidden=6, embedding=4, tie=False).settings_, 9)
    assert isinstance(untied.output, Output)
    assert not any("output" in name or "embedding" in name for name in hidden_matrices(untied))


def test_blocks_are_orthogonal_each():
    torch.manual_seed(2)
    update = torch.randn(7, 5)
    (found,) = orthogonalised([update], [(4, 3)])
    torch.testing.assert_close(found[:4], 0.2 * math.sqrt(5) * orthogonal(update[:4]))
    torch.testing.assert_close(found[4:], 0.2 * math.sqrt(5) * orthogonal(update[4:]))


def test_the_last_linear_map_of_a_module_is_taken_for_its_output():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.read, self.out = nn.GRU(3, 4), nn.Linear(4, 2)

    assert list(hidden_matrices(Two())) == ["read.weight_ih_l0", "read.weight_hh_l0"]
    assert list(hidden_matrices(nn.GRU(3, 4))) == ["weight_ih_l0", "weight_hh_l0"]
