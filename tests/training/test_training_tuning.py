"""Depths, frozen parts, learning rates by layer, gradual unfreezing, low-rank changes: on a model small enough to count."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from training_toy import held_until_their_stage

from anaphora.errors import SettingsError
from anaphora.nn import LSTM, Recurrent
from anaphora.nn.attention import MultiHead
from anaphora.nn.lora import has_adapters, merged
from anaphora.nn.transformer import EncoderLayer, FeedForward, TransformerEncoder
from anaphora.settings import TrainingSettings, TuningSettings
from anaphora.training.depths import Depth, depths
from anaphora.training.optimizers import build_optimizer
from anaphora.training.tuning import prepare


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.stack = TransformerEncoder(EncoderLayer(MultiHead(4, 2), FeedForward(4, 6), norm_first=True), 3)
        self.norm = nn.LayerNorm(4)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.output = Body(), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.output(self.encoder.stack(self.encoder.norm(self.encoder.embedding(x))))
        return scores


def made() -> Model:
    torch.manual_seed(3)
    return Model().eval()


def ready(model: nn.Module, parts: tuple[str, ...] = ("encoder.",), **settings: Any) -> Any:
    return prepare(model, TuningSettings(**settings), parts=parts, seed=1, every=lambda: 7)


def moving(model: nn.Module) -> set[str]:
    return {name for name, one in model.named_parameters() if one.requires_grad}


def test_a_parameter_knows_its_layer() -> None:
    found = depths(made(), ("encoder.",))
    assert found["encoder.embedding.weight"] == found["encoder.norm.weight"] == Depth(0, 3)
    assert found["encoder.stack.layers.0.attention.inward.weight"] == Depth(1, 3)
    assert found["encoder.stack.layers.2.feedforward.first.bias"] == Depth(3, 3)
    assert found["encoder.stack.norm.weight"] == Depth(3, 3)
    assert "output.weight" not in found
    assert depths(made(), ("",))["output.weight"] == Depth(4, 3)
    assert [Depth(n, 3).from_top for n in range(5)] == [4, 3, 2, 1, 0]


def test_both_directions_of_a_recurrent_layer_are_one_layer() -> None:
    model = nn.ModuleDict({"encoder": Recurrent(LSTM(3, 4), layers=2, bidirectional=True)})
    layers = {name.split(".")[2]: one for name, one in depths(model, ("encoder.",)).items()}
    assert layers == {"0": Depth(1, 2), "1": Depth(1, 2), "2": Depth(2, 2), "3": Depth(2, 2)}


def test_freeze_takes_all_some_layers_or_names() -> None:
    ready(model := made(), freeze=True)
    assert moving(model) == {"output.weight", "output.bias"}
    ready(model := made(), freeze=2)
    assert {name.split(".")[3] for name in moving(model) if "layers" in name} == {"2"}
    assert "encoder.embedding.weight" not in moving(model)
    ready(model := made(), freeze="embedding, encoder.stack.layers.1")
    assert "encoder.embedding.weight" not in moving(model)
    assert {name.split(".")[3] for name in moving(model) if "layers" in name} == {"0", "2"}


def test_lower_layers_learn_more_slowly() -> None:
    model = made()
    tuning = ready(model, layer_decay=0.5)
    settings = TrainingSettings(lr=0.8, weight_decay=0.1)
    optimizer = build_optimizer(model, settings, tuning.rates)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    rates = {names[id(p)]: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert set(rates) == set(names.values())
    assert rates["output.weight"] == 0.8
    assert rates["encoder.stack.layers.2.attention.inward.weight"] == rates["encoder.stack.norm.bias"] == 0.4
    assert rates["encoder.stack.layers.0.attention.inward.weight"] == pytest.approx(0.1)
    assert rates["encoder.embedding.weight"] == pytest.approx(0.05)
    shrunk = {
        names[id(p)]: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]
    }
    assert (shrunk["encoder.norm.bias"], shrunk["encoder.embedding.weight"]) == (0.0, 0.1)


def test_layers_begin_to_move_one_after_the_other() -> None:
    tuning = ready(made(), unfreeze="gradual")
    assert tuning.every == 7
    held = [
        {name.split(".")[3] for name in tuning.held(step) if "layers" in name} for step in (1, 7, 8, 15, 22)
    ]
    assert held == [{"0", "1", "2"}, {"0", "1", "2"}, {"0", "1"}, {"0"}, set()]
    assert "encoder.embedding.weight" in tuning.held(28)
    assert not tuning.held(29)
    whole = ready(made(), ("",), unfreeze="gradual", unfreeze_every=2)  # nothing is new: the highest begins
    assert "output.weight" not in whole.held(1)
    assert "encoder.stack.layers.2.attention.inward.weight" in whole.held(2)
    assert "encoder.stack.layers.2.attention.inward.weight" not in whole.held(3)


def test_low_rank_changes_begin_with_none_and_merge_to_the_same_function() -> None:
    x = torch.tensor([[0, 1, 2, 3, 4, 1]])
    plain, model = made(), made()
    tuning = ready(model, lora=2)
    assert torch.equal(model(x), plain(x))
    assert set(model.state_dict()) == {"output.weight", "output.bias"} | {
        f"encoder.stack.layers.{i}.{part}.lora_{ab}"
        for i in range(3)
        for part in ("attention.inward", "attention.outward", "feedforward.first", "feedforward.second")
        for ab in "ab"
    }
    with torch.no_grad():
        for one in model.parameters():
            one.add_(0.3 * torch.randn_like(one))
    changed = model(x)
    assert (changed - plain(x)).abs().max() > 0.01
    tensors = copy.deepcopy(model.state_dict())
    assert has_adapters(tensors)
    plain.load_state_dict(merged(tuning.base, tensors, scale=2.0))
    torch.testing.assert_close(plain(x), changed, rtol=0, atol=1e-6)


def test_gradients_reach_the_changes_alone() -> None:
    model = made()
    ready(model, lora=2, lora_targets="attention")
    model(torch.tensor([[0, 1, 2]])).square().sum().backward()
    with_gradient = {name for name, one in model.named_parameters() if one.grad is not None}
    assert with_gradient == set(model.state_dict())
    assert not any("feedforward" in name or "embedding" in name for name in with_gradient)


@pytest.mark.parametrize(
    ("settings", "parts", "why"),
    [
        ({"freeze": 4}, ("encoder.",), "freeze = 4 cannot be used: the model of init has 3 layers"),
        ({"freeze": "decoder"}, ("encoder.",), "no part of the model is called decoder"),
        ({"freeze": True}, ("",), "this leaves nothing to train"),
        ({"lora": 2, "lora_targets": "cells"}, ("encoder.",), "no part of it is called cells"),
        ({"layer_decay": 0.9}, ("output.",), "layer_decay = 0.9 cannot be used"),
        ({"lora": 2}, ("none.",), "no part that was begun"),
    ],
)
def test_what_means_nothing_to_a_model_is_an_error(settings: Any, parts: tuple[str, ...], why: str) -> None:
    if "layer_decay" in settings:
        model: nn.Module = nn.ModuleDict({"output": nn.Linear(2, 2)})
    else:
        model = made()
    with pytest.raises(SettingsError, match=why):
        ready(model, parts, **settings)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"lora": 8, "donates": "nothing"}, "lora = 8 is about the weights that init gives"),
        ({"lora": 8, "freeze": True}, "leave freeze out"),
        ({"lora": 8, "unfreeze": "gradual"}, "leave unfreeze out"),
        ({"lora_alpha": 4.0}, "lora_alpha is about lora"),
        ({"freeze": True, "layer_decay": 0.5}, "leave layer_decay out"),
        ({"unfreeze_every": 3}, "is about unfreeze"),
        ({"lora": 8, "shard": "full"}, "leave lora and unfreeze out"),
        ({}, None),
        ({"donates": "nothing"}, None),
        ({"freeze": 2, "layer_decay": 0.9, "unfreeze": "gradual"}, None),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], why: str | None) -> None:
    usual = {key: one.default for key, one in TuningSettings.model_fields.items()}
    found = TuningSettings.problem(
        SimpleNamespace(**{**usual, "donates": "weights", "shard": "none", **settings})
    )
    assert found is None if why is None else why in (found or "")


def test_a_parameter_does_not_move_before_its_stage(tmp_path: Path) -> None:
    held_until_their_stage(tmp_path, "cpu")
