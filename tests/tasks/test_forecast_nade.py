"""0s and 1s of one step that depend on each other (nade): learned, judged, drawn, looked into and exported."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.tasks.forecast.inference.running import chain_of
from anaphora.tasks.recipe import Recipe

TINY = {
    "model": "lstm",
    "output": "binary",
    "hidden": 8,
    "horizon": 1,
    "window": 4,
    "steps": 120,
    "lr": 0.03,
    "batch_tokens": 512,
    "dropout": 0.0,
    "ema": 0.0,
    "device": "cpu",
    "threads": 1,
}


def pairs(steps: int = 400, seed: int = 0) -> np.ndarray:
    """Two columns that are always equal and never foreseen, and a third that is their opposite; (steps, 3)."""
    tossed = (np.random.default_rng(seed).random(steps) < 0.5).astype(float)
    return np.stack([tossed, tossed, 1 - tossed], axis=1)


@pytest.fixture(scope="module")
def trained() -> an.Forecaster:
    return an.Forecaster(nade=8, **TINY).fit(pairs(), valid=pairs(100, seed=1))


def test_what_comes_together_is_learned_together(trained):
    alone = an.Forecaster(**{**TINY, "steps": 20}).fit(pairs(), valid=pairs(100, seed=1))
    assert trained.score(pairs(100, seed=2))["nll"] < 1.0  # log 2 at best
    assert alone.score(pairs(100, seed=2))["nll"] > 1.9  # 3 log 2


def test_nll_is_that_of_whole_steps(trained):
    """Against the loop over the targets, written out for every window."""
    data, total, count = pairs(30, seed=3), 0.0, 0
    chain, model, read = chain_of(trained.model_), trained.model_, trained.columns_.standardised(data)
    for end in range(4, len(data)):
        x = torch.from_numpy(read[end - 4 : end]).float()[None]
        with torch.no_grad():
            bias, hidden = (
                part[0, 0, 0].double().numpy() for part in model.parts(x, torch.zeros(1, 1, 1, 0))
            )
        for i, value in enumerate(data[end]):
            p = 1 / (1 + np.exp(-(bias[i] + chain.outward[i] @ np.maximum(hidden, 0))))
            total -= np.log(p if value else 1 - p)
            hidden = hidden + value * chain.inward[i]
        count += 1
    assert trained.score(data)["nll"] == pytest.approx(total / count, abs=1e-5)


def test_steps_are_drawn_as_wholes_and_rates_are_those_of_single_targets(trained):
    drawn = trained.predict(pairs(20), horizon=40, sample=True, seed=4)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert (drawn[:, 0] == drawn[:, 1]).mean() > 0.9
    assert (drawn[:, 0] != drawn[:, 2]).mean() > 0.9
    assert (trained.predict(pairs(20), horizon=40, sample=True, seed=4) == drawn).all()
    rates = trained.predict(pairs(20))
    assert ((rates > 0.05) & (rates < 0.95)).all()
    assert rates[0, 0] == pytest.approx(1 - rates[0, 2], abs=0.1)


def test_aligned_targets_do_not_see_themselves():
    data = np.concatenate([pairs(200), pairs(200, seed=9)[:, :1]], axis=1)
    columns = dict(zip("abcd", data.T, strict=True))
    m = an.Forecaster(nade=8, **{**TINY, "horizon": 0, "window": 0, "steps": 60, "targets": "a,b,c"})
    m.fit(columns, valid=columns)
    blank = {name: values if name == "d" else np.zeros_like(values) for name, values in columns.items()}
    assert np.array_equal(m.predict(columns), m.predict(blank))
    assert np.abs(m.predict(columns)[:, :2].mean() - 0.5) < 0.2


def test_a_run_keeps_it(trained, tmp_path):
    trained.save(tmp_path / "run")
    again = an.load(tmp_path / "run")
    assert np.array_equal(again.predict(pairs(20)), trained.predict(pairs(20)))
    assert again.settings_.nade == 8


def test_it_can_be_looked_into(trained):
    trace = trained.probe(pairs(20), what=("attribution",))
    found = trace.array("forecast", "step", "output")
    assert np.array_equal(found, trained.predict(pairs(20)))
    assert np.array_equal(trace.array("forecast_low", "step", "output"), found)


def test_several_steps_ahead_and_columns_known_in_advance():
    data = np.concatenate([pairs(120), np.tile([0.0, 1.0], 60)[:, None]], axis=1)
    columns = dict(zip("abcd", data.T, strict=True))
    m = an.Forecaster(nade=4, **{**TINY, "horizon": 2, "steps": 3, "known": "d"}).fit(columns, valid=columns)
    ahead = {
        name: np.concatenate([v, [0.0, 1.0] if name == "d" else [np.nan] * 2]) for name, v in columns.items()
    }
    assert m.predict(ahead).shape == (2, 3)
    assert m.model_.nade.inward.shape == (3, 4)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"output": "continuous"},
            r"nade = 8 is for 0s and 1s \(output = 'binary'\), not for output = 'continuous'",
        ),
        (
            {"apart": True},
            "nade = 8 lets targets depend on each other, but apart = true forecasts each by itself",
        ),
    ],
)
def test_what_contradicts_it_is_refused(asked, said):
    with pytest.raises(SettingsError, match=said):
        an.Forecaster(nade=8, **{**TINY, **asked}).fit(pairs())


def away(truth, answers):
    return float(np.abs(truth - answers).mean())


def test_own_measures_get_forecasts_that_have_not_seen_the_truth():
    m = an.Forecaster(nade=8, metrics={"away": away}, **TINY).fit(pairs(), valid=pairs(100, seed=1))
    assert m.result_.metrics["loss"] < 1.0  # the second target follows from the first …
    assert m.result_.metrics["away"] > 0.4  # … but neither is foreseen


def test_rolls_have_it_by_default_and_other_columns_do_not(tmp_path):
    asked = {**TINY, "hidden": 4, "window": 0, "steps": 2}
    pieces = [[[60, 64], [62], [64, 67], [65], [60]], [[21, 108], [21], [108], [50], [51]]]
    (tmp_path / "rolls.json").write_text(json.dumps({"train": pieces, "valid": pieces, "test": pieces}))
    assert an.Forecaster(**asked).fit(tmp_path / "rolls.json").model_.nade.inward.shape == (88, 128)
    assert an.Forecaster(nade=0, **asked).fit(tmp_path / "rolls.json").model_.nade is None
    assert an.Forecaster(**asked).fit(pairs(40), valid=pairs(20)).model_.nade is None


def test_runs_from_before_it_keep_their_network(tmp_path):
    asked = {**TINY, "hidden": 4, "window": 0, "steps": 2, "nade": 0, "neighbours": 0}
    pieces = [[[60, 64], [62], [64, 67], [65], [60]], [[21, 108], [21], [108], [50], [51]]]
    (tmp_path / "rolls.json").write_text(json.dumps({"train": pieces, "valid": pieces, "test": pieces}))
    m = an.Forecaster(**asked).fit(tmp_path / "rolls.json")
    m.save(tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["settings"].pop("nade"), config["settings"].pop("neighbours")) == (0, 0)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    old = Recipe.read(tmp_path / "old").settings
    assert (old.nade, old.neighbours) == (0, 0)


@pytest.mark.parametrize("model", ["linear", "mlp", "rnn", "gru", "conv", "transformer", "mingru"])
def test_every_network_takes_rolls(model, tmp_path):
    asked = {"output": "binary", "horizon": 1, "window": 2, "steps": 2, "device": "cpu", "threads": 1}
    sizes = {"normalize": "none"} if model == "linear" else {"hidden": 8, "layers": 1}
    pieces = [[[60, 64], [62], [64, 67], [65], [60]], [[21, 108], [21], [108], [50], [51]]]
    (tmp_path / "rolls.json").write_text(json.dumps({"train": pieces, "valid": pieces, "test": pieces}))
    m = an.Forecaster(model, **asked, **sizes).fit(tmp_path / "rolls.json")
    assert (getattr(m.model_, "nade", None) is None) == (model == "linear")
    assert np.isfinite(m.score(tmp_path / "rolls.json")["nll"])
