"""``epochs`` instead of ``steps``: counted, recorded, kept by resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.data.batches.pooled import HeldBatches
from anaphora.data.batches.stream import StreamBatches, WindowBatches
from anaphora.data.sources.report import reported
from anaphora.errors import SettingsError
from anaphora.settings import TrainingSettings
from anaphora.tasks.info import TaskInfo
from anaphora.tasks.registry import TASKS, resolve
from anaphora.tasks.verify import verify_run
from anaphora.training.epochs import counted

DATA = [("a b", "x"), ("b a", "y"), ("a", "x"), ("b", "y")] * 5
TINY: dict[str, Any] = {"hidden": 4, "embedding": 4, "batch_tokens": 12, "valid_every": 50, "save_every": 50}


@pytest.mark.parametrize(
    "batches",
    [
        HeldBatches(
            [3, 1, 4, 1, 5, 9, 2, 6], lambda rows: rows, batch_tokens=10, max_tokens=8, seed=1, pool=3
        ),
        StreamBatches(np.arange(50), rows=3, steps=4, seed=1),
        WindowBatches(np.arange(50), rows=3, steps=4, seed=1),
    ],
    ids=["held", "stream", "windows"],
)
def test_the_count_is_that_of_the_first_epoch(batches: Any) -> None:
    count, before = batches.per_epoch(), batches.state()
    served = 0
    while batches.epoch == 0:
        next(batches)
        served += batches.epoch == 0
    assert count == served
    batches.restore(before)
    assert batches.per_epoch() == count
    assert batches.state() == before


def test_epochs_become_steps_that_the_run_keeps(tmp_path: Path) -> None:
    m = an.Classifier("lstm", epochs=2, **TINY).fit(DATA, valid=DATA, out=tmp_path / "run")
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert settings["epochs"] == 2
    assert settings["steps"] == m.result_.steps
    (one,) = {an.Classifier("lstm", epochs=1, **TINY).fit(DATA, valid=DATA).result_.steps}
    assert m.result_.steps == 2 * one
    loaded = an.load(tmp_path / "run", an.Classifier)
    assert (loaded.settings_.epochs, loaded.settings_.steps) == (2, m.result_.steps)
    assert "steps" not in loaded._given
    assert an.Classifier.resume(tmp_path / "run").result_.steps == 2 * one
    assert an.Classifier.resume(tmp_path / "run", epochs=3).result_.steps == 3 * one
    assert an.Classifier.resume(tmp_path / "run", steps=3 * one + 1).result_.steps == 3 * one + 1
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["epochs"], settings["steps"]) == (0, 3 * one + 1)


def test_an_objective_knows_the_steps_that_were_counted() -> None:
    m = an.Translator(
        "gru-attention",
        epochs=1,
        teacher_forcing=0.5,
        forcing_schedule="linear",
        **{**TINY, "batch_tokens": 20},
    ).fit([("a b", "x y"), ("b", "y")] * 10)
    assert m.result_.steps == m.settings_.steps < 50


def test_both_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="steps = 5 and epochs = 2 both set how long to train"):
        an.Classifier("lstm", steps=5, epochs=2)
    with pytest.raises(SettingsError, match="both set how long"):
        an.Classifier("lstm", steps=5).set_params(epochs=2)
    m = torch.nn.Linear(1, 1)
    batches = [torch.ones(2, 1)] * 3
    assert an.fit(m, lambda m, x: m(x).square().mean(), batches, epochs=2).steps == 6
    with pytest.raises(SettingsError, match="both set how long"):
        an.fit(m, lambda m, x: m(x).square().mean(), batches, epochs=2, steps=3)
    with (
        pytest.warns(UserWarning, match="generator"),
        pytest.raises(SettingsError, match="epochs cannot be counted"),
    ):
        an.fit(m, lambda m, x: m(x).square().mean(), iter(batches), epochs=2)


def test_targets_longer_than_an_output_may_be_are_counted() -> None:
    pairs = [("a", "x " * 30), ("a b", "x")] * 4
    tiny = {**TINY, "batch_tokens": 200, "steps": 1, "tokens": "word", "max_length": 23}
    with pytest.warns(UserWarning, match=r"4 of 8 training targets are longer than an output may be"):
        an.Translator("gru-attention", **tiny).fit(pairs, valid=pairs)


def test_the_command_refuses_both_and_plans_with_epochs() -> None:
    from anaphora.cli.request import read_request

    places = {"task": "classify", "data": "train.tsv"}
    with pytest.raises(SettingsError, match="both set how long to train"):
        read_request(None, places, {"steps": 5}, ("epochs=2",))
    assert read_request(None, places, {"epochs": 2.0}, ()).given == {"epochs": 2.0}
    plan = an.Classifier("lstm", epochs=2, **TINY).plan(DATA)
    longer = an.Classifier("lstm", epochs=4, **TINY).plan(DATA)
    assert plan["epochs"] == 2
    assert 2 * plan["steps"] - 1 <= longer["steps"] <= 2 * plan["steps"]


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_presets_train_for_epochs_and_stop_early(task: TaskInfo) -> None:
    """Steps that suit one corpus are too few or too many for another; steps that are given are all trained."""
    for name, preset in task.presets.items():
        if preset.direct:
            continue
        usual, asked, longer = (
            cast(TrainingSettings, resolve(task, {"model": name, **given}))
            for given in ({}, {"steps": 7}, {"epochs": 3})
        )
        assert usual.epochs > 1
        assert 0 < usual.min_steps < usual.max_steps
        assert 0 < usual.patience < 20
        if name != "awd-lstm":
            assert usual.valid_every == 0
            assert asked.valid_every > 0
        assert (asked.steps, asked.epochs, asked.min_steps, asked.max_steps) == (7, 0, 0, 0)
        assert (longer.epochs, longer.min_steps, longer.max_steps) == (3, 0, 0)


def test_steps_that_are_given_have_the_patience_of_the_defaults() -> None:
    for kind in (an.LanguageModel, an.Forecaster, an.Translator, an.Tagger):
        assert kind(steps=7).settings_.patience == 0


@pytest.mark.parametrize(
    ("task", "preset", "data", "expected"),
    [
        (an.Translator, "lstm-attention", "numbers", 6000),
        (an.Translator, "transformer", "commands", 6000),
        (an.Translator, "rnn", "numbers", 4000),
        (an.Tagger, "bilstm", "names", 1000),
        (an.Classifier, "bow", "reviews", 1000),
        (an.Embedder, "bow", "numbers", 2000),
        (an.Transcriber, "bilstm-ctc", "tones", 900),
    ],
)
def test_embedded_corpora_are_trained_on_for_the_steps_of_the_preset(
    task: Any, preset: str, data: str, expected: int, small_corpora: None
) -> None:
    """They are generated, so that a pass over them means nothing; that is reported."""
    said: list[str] = []
    m = task(preset)
    with reported(said.append):
        plan = m.plan(data)
    s = m.settings_
    assert (plan["steps"], s.steps, s.epochs, s.max_steps) == (expected, expected, 0, 0)
    assert s.valid_every > 0
    assert any(line.startswith("assumed, for an embedded corpus: steps=") for line in said)
    asked = task(preset, epochs=2)
    asked.plan(data)
    assert asked.settings_.epochs == 2


def test_a_corpus_that_was_written_to_a_file_is_counted_in_passes(tmp_path: Path) -> None:
    rows = [(f"n{i % 7} n{i % 5} n{i % 3}", f"m{i % 7}") for i in range(300)]
    (tmp_path / "train.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    m = an.Translator()
    assert m.plan(str(tmp_path / "train.tsv"))["steps"] == m.settings_.min_steps == 3000
    assert m.settings_.epochs == 47


def test_a_warm_up_is_at_most_a_quarter_of_the_steps_that_were_counted(tmp_path: Path) -> None:
    batches = StreamBatches(np.arange(50), rows=3, steps=4, seed=1)
    assert counted(TrainingSettings(epochs=1, min_steps=100, warmup=80), batches).warmup == 25
    assert counted(TrainingSettings(epochs=1, min_steps=100, warmup=20), batches).warmup == 20
    assert counted(TrainingSettings(steps=100, warmup=80), batches).warmup == 80
    said: list[str] = []
    with reported(said.append):
        m = an.Classifier("lstm", epochs=2, **TINY).fit(DATA, valid=DATA, out=tmp_path / "run")
    assert m.settings_.warmup == m.settings_.steps // 4
    assert f"assumed, for {m.settings_.steps} steps: warmup={m.settings_.warmup}" in said
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert stored["warmup"] == m.settings_.warmup


def test_a_run_of_epochs_is_whole(tmp_path: Path) -> None:
    an.Classifier("lstm", epochs=2, **TINY).fit(DATA, valid=DATA, out=tmp_path / "run")
    assert all(one.fine for one in verify_run(tmp_path / "run"))


def test_an_interrupted_run_of_a_budget_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    bounds = {"epochs": 2, "min_steps": 40, "max_steps": 60, "patience": 10, "warmup": 30, "keep": 9}
    small = {**TINY, **bounds, "valid_every": 0, "save_every": 8, "ema": 0.9}
    whole = an.Classifier("lstm", **small).fit(DATA, valid=DATA, out=tmp_path / "whole")
    an.Classifier("lstm", **small).fit(DATA, valid=DATA, out=tmp_path / "cut")
    back = an.Classifier.resume(tmp_path / "cut", checkpoint=16)
    assert back.settings_ == whole.settings_
    for key, value in whole.model_.state_dict().items():
        assert torch.equal(value, back.model_.state_dict()[key])


def test_epochs_are_counted_between_bounds() -> None:
    batches = StreamBatches(np.arange(50), rows=3, steps=4, seed=1)
    one = batches.per_epoch()

    def steps(**given: Any) -> tuple[int, int]:
        found = counted(TrainingSettings(valid_every=0, **given), batches)
        return found.steps, found.valid_every

    assert steps(epochs=10) == (10 * one, -(-10 * one // 20))
    assert steps(epochs=10, min_steps=20 * one)[0] == 20 * one
    assert steps(epochs=10, max_steps=7)[0] == 7
    assert steps(steps=100) == (100, 5)
    assert steps(steps=100_000) == (100_000, 1000)
    assert counted(TrainingSettings(steps=9, valid_every=4), batches).valid_every == 4
    assert counted(TrainingSettings(steps=100, valid_every=0), batches, evaluations=10).valid_every == 10


def test_tasks_that_search_for_outputs_evaluate_half_as_often() -> None:
    pairs = [(f"a{i} b", f"b a{i}") for i in range(40)]
    m = an.Translator("lstm-attention", hidden=4, embedding=4, batch_tokens=64, min_steps=30, max_steps=30)
    m.fit(pairs, verbose=False)
    assert (m.settings_.steps, m.settings_.valid_every) == (30, 3)


def test_a_run_of_a_preset_stops_when_the_dev_loss_rises(tmp_path: Path) -> None:
    text = "".join(f"{'abcdefghij'[i * i % 7]}{'klmnop'[i % 6]}\n" for i in range(120))
    m = an.LanguageModel(
        "lstm", hidden=16, embedding=8, bptt=8, batch_tokens=64, lr=0.05, length=3, patience=1
    )
    m.fit([text], valid=["zz yy xx\n" * 5], out=tmp_path / "run", verbose=False)
    assert m.settings_.steps >= 300
    assert m.settings_.valid_every == m.settings_.steps // 20
    assert m.result_.stopped == "patience"
    assert m.result_.steps < m.settings_.steps
    again = an.LanguageModel.resume(tmp_path / "run", epochs=60, verbose=False)
    assert again.settings_.steps > m.settings_.steps


def test_a_large_lstm_has_other_numbers_for_words_than_for_characters() -> None:
    letters, words = (an.LanguageModel("awd-lstm", tokens=kind).settings_ for kind in ("char", "word"))
    assert (letters.layers, letters.hidden, letters.weight_dropout) == (2, 640, 0)
    assert (words.layers, words.hidden, words.weight_dropout, words.vocab_size) == (3, 1152, 0.5, 50_000)
    assert an.LanguageModel("awd-lstm", tokens="bpe", layers=1, steps=9).settings_.layers == 1
    assert an.LanguageModel("awd-lstm", tokens="word", steps=9).settings_.epochs == 0


def test_recurrent_forecasts_of_zeros_and_ones_have_a_recipe_of_their_own() -> None:
    roll, series = an.Forecaster(output="binary").settings_, an.Forecaster().settings_
    assert (roll.hidden, roll.ema, roll.batch_tokens) == (256, 0.99, 1024)
    assert roll.epochs > series.epochs
    assert series.ema == 0
    given = an.Forecaster(output="binary", steps=5, hidden=8).settings_
    assert (given.steps, given.epochs, given.hidden) == (5, 0, 8)
    assert an.Forecaster("conv", output="binary").settings_.ema == 0
