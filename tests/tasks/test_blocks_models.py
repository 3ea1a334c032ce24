"""Networks of the lectures as presets: a Vision Transformer, a feed-forward network on a window; and clipping by group."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from classify_tiny import bars, tiny
from test_blocks import WAVE, goes_on, made
from torch import nn
from torch.nn import functional as F

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.models.forecaster import WindowReader
from anaphora.models.looking import PatchEncoder
from anaphora.nn.positions import Learned, NoPositions
from anaphora.nn.transformer import TransformerEncoder
from anaphora.settings import TrainingSettings
from anaphora.tasks.parts import encoder_layer
from anaphora.training.distributed import Group
from anaphora.training.objective import LossSum
from anaphora.training.step import Stepper, clip_groups


def test_the_patches_of_a_vision_transformer_are_a_convolution_with_strides():
    torch.manual_seed(0)
    settings = an.Classifier("vit", hidden=8, heads=2, feedforward=8, layers=1).settings_
    stack = TransformerEncoder(encoder_layer(settings, grid=True), 1)
    encoder = PatchEncoder(3, 2, stack, positions=Learned(8, 5), first=True).eval()
    picture = torch.randn(2, 6, 5, 2)  # the last column is filled up with zeros
    weight = encoder.embedding.weight.view(8, 3, 3, 2).permute(0, 3, 1, 2)
    padded = F.pad(picture.permute(0, 3, 1, 2), (0, 1))
    seen = F.conv2d(padded, weight, encoder.embedding.bias, stride=3).flatten(2).transpose(1, 2)
    x = torch.cat((encoder.first.expand(2, 1, -1), seen), 1) + encoder.positions.weight
    torch.testing.assert_close(encoder(picture, torch.tensor([6, 6])).annotations, stack(x))


def test_a_vision_transformer_without_positions_sees_a_bag_of_squares():
    settings = an.Classifier("vit", hidden=8, heads=2, feedforward=8, layers=1).settings_
    stack = TransformerEncoder(encoder_layer(settings, grid=True), 1)
    encoder = PatchEncoder(2, 1, stack, positions=NoPositions()).eval()
    picture = torch.randn(1, 4, 2, 1)
    swapped = torch.cat((picture[:, 2:], picture[:, :2]), 1)
    lengths = torch.tensor([4])
    found, other = encoder(picture, lengths).annotations, encoder(swapped, lengths).annotations
    torch.testing.assert_close(found, other.flip(1))


def test_the_first_place_of_a_vision_transformer_answers(tmp_path):
    model = tiny("vit", pooling="first", steps=4, valid_every=2, save_every=2).fit(
        bars(20), out=tmp_path / "run"
    )
    assert model.model_.encoder.first is not None
    again = an.load(tmp_path / "run", device="cpu")
    asked = [x for x, _ in bars(4, seed=1)]
    np.testing.assert_array_equal(again.predict_proba(asked), model.predict_proba(asked))
    with pytest.raises(SettingsError, match="vit reads a grid"):
        an.Classifier("vit", positions="rotary")


def test_a_network_on_a_window_is_its_formula():
    reader = WindowReader(2, 5, 3, layers=2).double()
    x = torch.randn(1, 6, 2, dtype=torch.float64)
    windows = F.pad(x, (0, 0, 2, 0)).unfold(1, 3, 1)  # (1, 6, 2, 3)
    weight = reader.first.weight  # (5, 2, 3)
    hidden = torch.tanh(torch.einsum("btfk,ofk->bto", windows, weight) + reader.first.bias)
    expected = torch.tanh(hidden @ reader.more[0].weight.T + reader.more[0].bias)
    torch.testing.assert_close(reader(x), expected)
    padded = torch.cat((x, torch.randn(1, 3, 2, dtype=torch.float64)), 1)
    torch.testing.assert_close(reader(padded)[:, :6], expected)  # what comes after is not seen


@pytest.mark.parametrize("variant", [{}, {"lags": 5}, {"patch": 2, "lags": 4}], ids=str)
def test_a_network_on_a_window_trains_and_goes_on(variant, tmp_path):
    goes_on(an.Forecaster, "mlp", variant, tmp_path)


def test_a_network_on_a_window_forecasts_a_wave():
    model = made(an.Forecaster, "mlp", steps=150, valid_every=50, hidden=16, layers=1, lr=1e-2, dropout=0.0)
    model.fit(WAVE)
    assert model.score(WAVE)["mse"] < 0.02  # the wave has the variance ½
    with pytest.raises(SettingsError, match="set lags, or a window"):
        an.Forecaster("mlp", window=0)


def test_groups_are_layers_and_single_modules():
    model = made(an.LanguageModel, "lstm", layers=2, peephole=True).fit(["the quick brown fox\n" * 20]).model_
    names = {id(p): name for name, p in model.named_parameters()}
    groups = [sorted(names[id(p)] for p in group) for group in clip_groups(model)]
    assert sum(map(len, groups)) == len(names)
    beginnings = {".".join(group[0].split(".")[:4]) for group in groups if "cells" in group[0]}
    assert beginnings == {"body.recurrent.cells.0", "body.recurrent.cells.1"}


def gradients(clip_by: str, clip: float) -> tuple[dict[str, torch.Tensor], bool]:
    """Of a toy with one steep and one flat part, after the step has clipped them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    with torch.no_grad():
        model[1].weight.mul_(100)  # so that the first layer's gradient is large

    class Batch:
        symbols = 1

        def __len__(self) -> int:
            return 1

        def shard(self, part: int, parts: int) -> Batch:
            return self

    def objective(module: nn.Module, batch: Batch) -> LossSum:
        return LossSum(module(torch.ones(1, 3)).sum(), 1)

    settings = TrainingSettings(clip=clip, clip_by=clip_by, optimizer="sgd", device="cpu")
    objective_like = SimpleNamespace(loss=objective)
    stepper = Stepper(model, objective_like, settings, Group(0, 1, torch.device("cpu")), "fp32")
    outcome, factor = stepper.gradient(Batch(), 1)
    return {name: p.grad * factor for name, p in model.named_parameters()}, outcome.clipped


def length(found: dict[str, torch.Tensor], part: str) -> float:
    return math.sqrt(sum(float(g.square().sum()) for name, g in found.items() if name.startswith(part)))


def test_only_the_group_whose_gradient_explodes_is_clipped():
    free, _ = gradients("global", 0.0)
    most = 2 * length(free, "1")
    assert length(free, "0") > most
    found, clipped = gradients("group", most)
    assert clipped
    assert length(found, "0") == pytest.approx(most)
    for name in ("1.weight", "1.bias"):
        torch.testing.assert_close(found[name], free[name])  # the calm part is left alone
    torch.testing.assert_close(found["0.weight"] / most, free["0.weight"] / length(free, "0"))
    together, _ = gradients("global", most)
    assert length(together, "1") < length(
        free, "1"
    )  # where the whole is clipped, the calm part shrinks with it


def test_a_run_clipped_by_group_goes_on(tmp_path):
    goes_on(an.Classifier, "bilstm", {"clip_by": "group", "clip": 0.01}, tmp_path)
