"""Means of weights: from a share of the steps on (SWA), and from when the dev metric stops improving (NT-ASGD)."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from training_toy import toy_settings

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.tasks.recipe import Recipe
from anaphora.training.averaging import MovingAverage, TriggeredMean, average_of
from anaphora.training.schedules import Progress


def weight_of(average, model):
    with average.in_place_of(model):
        return model.weight.item()


def numbers(average, model, values, first=1):
    for step, value in enumerate(values, first):
        nn.init.constant_(model.weight, value)
        average.update(model, step)


def test_swa_is_the_mean_of_what_comes_after_its_share_of_the_steps():
    model = nn.Linear(1, 1, bias=False)
    average = average_of(model, toy_settings(swa=0.5, steps=6))
    numbers(average, model, [9.0, 9.0, 9.0])
    assert not average.active
    numbers(average, model, [1.0, 2.0, 6.0], first=4)
    assert weight_of(average, model) == pytest.approx(3.0)
    assert model.weight.item() == 6.0


def test_swa_that_would_be_the_mean_of_no_step_is_refused():
    model = nn.Linear(1, 1, bias=False)
    assert average_of(model, toy_settings(swa=0.75, steps=4)).after == 3
    with pytest.raises(SettingsError, match=r"swa = 0\.9 of 4 steps leaves none to average"):
        average_of(model, toy_settings(swa=0.9, steps=4))  # steps that were counted from epochs
    with pytest.raises(SettingsError, match=r"swa = 0\.9 of 4 steps leaves none to average"):
        an.LanguageModel(swa=0.9, steps=4)


@pytest.mark.parametrize(
    ("values", "begins"),
    [
        ([5, 4, 3, 2, 1], None),  # always better
        (
            [5, 4, 3, 3.5, 2],
            None,
        ),  # 3.5 is no worse than 4, the best of those at least two evaluations before
        ([5, 4, 3, 3.5, 3.2], 4),  # 3.2 is worse than 3
        ([5, 4, 5.5], 2),  # at once
        ([5, None, 4, None], 3),  # a dev metric that is not finite is worse than any
    ],
)
def test_the_trigger_looks_back_over_the_metrics_before(values, begins):
    """v_t > min(v_1 … v_{t−n}) with n = 2, as in Merity et al. 2018, Algorithm 1."""
    average = TriggeredMean(nn.Linear(1, 1), 2)
    found = None
    for at in range(len(values)):
        average.evaluated(values[: at + 1])
        if found is None and bool(average.tensors["/state"][0]):
            found = at
    assert found == begins


def test_progress_keeps_metrics_that_json_can_hold():
    progress = Progress()
    progress.evaluated(True, 2.0, 0.7)
    progress.evaluated(False, float("nan"), float("nan"))
    expected = {"halvings": 0, "waited": 1, "since_best": 1, "lowest": 0.7, "values": [2.0, None]}
    assert progress.state() == expected


def test_ntasgd_is_sgd_with_the_trigger():
    settings = toy_settings(optimizer="ntasgd")
    assert settings.trigger == 5
    assert isinstance(average_of(nn.Linear(1, 1), settings), TriggeredMean)
    assert toy_settings(optimizer="ntasgd", average_after=3).trigger == 3
    assert isinstance(average_of(nn.Linear(1, 1), toy_settings(ema=0.9)), MovingAverage)
    assert average_of(nn.Linear(1, 1), toy_settings()) is None


def test_two_beginnings_are_an_error():
    with pytest.raises(SettingsError, match="both say when averaging begins"):
        an.LanguageModel(swa=0.5, optimizer="ntasgd")


def test_a_language_model_by_sgd_reads_vectors_as_they_are():
    """Scaled by √width, their gradients would take nearly all of the clip."""
    usual, averaged = an.LanguageModel().settings_, an.LanguageModel(optimizer="ntasgd").settings_
    assert usual.embedding_scale
    assert not averaged.embedding_scale
    assert (averaged.lr, averaged.clip, averaged.schedule) == (30.0, 0.25, "constant")
    assert not an.LanguageModel(optimizer="sgd").settings_.embedding_scale
    assert an.LanguageModel(optimizer="sgd", embedding_scale=True, lr=2.0).settings_.embedding_scale
    assert an.LanguageModel(model="transformer", optimizer="sgd").settings_.embedding_scale


def share_of_vectors(scaled):
    """How much of the gradient's square is that of the symbols' vectors, untied."""
    from anaphora.tasks.language.build import build_language
    from anaphora.tasks.language.objective import cross_entropy

    settings = an.LanguageModel(
        optimizer="sgd", embedding_scale=scaled, embedding=64, hidden=16, tie=False
    ).settings_
    torch.manual_seed(0)
    model = build_language(settings, 30)
    symbols = torch.randint(4, 30, (4, 13))
    cross_entropy(model, model.read(symbols[:, :-1])[0], symbols[:, 1:]).backward()
    squares = {name: float(p.grad.square().sum()) for name, p in model.named_parameters()}
    return squares["body.embedding.weight"] / sum(squares.values())


def test_unscaled_vectors_leave_the_clip_to_the_whole_model():
    assert share_of_vectors(True) > 3 * share_of_vectors(False)


def test_a_run_from_before_the_setting_keeps_its_scaled_vectors(tmp_path):
    sizes = {"hidden": 4, "embedding": 4, "steps": 1, "valid_every": 1, "length": 3, "device": "cpu"}
    m = an.LanguageModel(optimizer="sgd", embedding_scale=True, **sizes)
    m.fit(["ab\n" * 60], out=tmp_path / "run", verbose=False)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"].pop("embedding_scale") is True
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    assert Recipe.read(tmp_path / "old").settings.embedding_scale
