"""The score of O is shifted to where dev F1 is best."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.tasks import balancing as balance
from anaphora.tasks.recipe import Recipe
from anaphora.training.weights import load_weights

SETTINGS = {
    "model": "mlp", "hidden": 8, "embedding": 8, "characters": "none", "kernel": 1, "steps": 30, "lr": 1e-2, "warmup": 0,
    "valid_every": 30, "save_every": 30, "ema": 0.0, "dropout": 0.0, "hide_rare": 0.0, "device": "cpu",
}  # fmt: skip


def sentences(count, seed):
    """In two of five places the word x is a name: a tagger that goes by probability says O."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        names = draw.random(6) < 0.4
        rows.append((["x"] * 6 + ["."], [*("B-N" if one else "O" for one in names), "O"]))
    return rows


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("balance")
    train, dev = sentences(60, 1), sentences(60, 2)
    made = {
        name: an.Tagger(**SETTINGS, balance_spans=name == "on").fit(train, valid=dev, out=place / name)
        for name in ("on", "off")
    }
    return place, made, dev


def test_rare_spans_are_found_and_the_measures_are_those_of_the_weights_kept(runs):
    place, made, dev = runs
    assert made["off"].result_.metrics["f1"] == 0.0
    assert made["on"].result_.metrics["f1"] > 50
    assert made["on"].result_.best == made["on"].result_.metrics["f1"]
    loaded = an.load(place / "on")
    assert loaded.score(dev)["f1"] == pytest.approx(made["on"].result_.metrics["f1"])
    assert made["on"].score(dev)["f1"] == loaded.score(dev)["f1"]
    assert f'"f1": {made["on"].result_.best}' in (place / "on/README.md").read_text()


def test_only_the_score_of_o_moves(runs):
    place, _, _ = runs
    (on, facts), (off, _) = (load_weights(place / name / "model.safetensors") for name in ("on", "off"))
    tags = json.loads((place / "on/learnt.json").read_text())["tags"]
    moved = off["output.bias"] - on["output.bias"]
    assert float(moved[tags.index("O")]) == pytest.approx(facts["balanced"])
    assert facts["balanced"] in balance.SHIFTS
    moved[tags.index("O")] = 0
    assert not moved.any()
    assert all(torch.equal(on[name], off[name]) for name in on if name != "output.bias")


def test_a_resumed_run_is_not_shifted_twice(runs):
    place, _, _ = runs
    before = (place / "on/model.safetensors").read_bytes()
    an.Tagger.resume(place / "on")
    assert (place / "on/model.safetensors").read_bytes() == before


def test_a_run_from_before_is_left_as_it_is(runs):
    """Its config does not name the setting; resumed after its end, its weights keep their bytes."""
    place, _, _ = runs
    config = json.loads((place / "off/config.json").read_text())
    del config["settings"]["balance_spans"]
    folder = place / "before"
    shutil.copytree(place / "off", folder)
    (folder / "config.json").write_text(json.dumps(config))
    assert Recipe.read(folder).settings.balance_spans is False


def test_few_spans_shift_nothing(tmp_path):
    m = an.Tagger(**SETTINGS).fit(sentences(60, 1), valid=sentences(5, 2), out=tmp_path / "few")
    assert "balanced" not in load_weights(tmp_path / "few/model.safetensors")[1]
    assert m.result_.metrics["f1"] == 0.0


def test_a_lucky_value_does_not_decide_and_the_model_is_left_alone():
    """0.25 has the best F1 by itself, 1.75 the best with its neighbours."""
    model = SimpleNamespace(output=SimpleNamespace(bias=torch.zeros(2)))
    curve = dict(zip(balance.SHIFTS, [10, 40, 10, 20, 20, 20, 30, 35, 30, 20, 10], strict=True))
    found = []

    def measured():
        found.append(-float(model.output.bias[1]))
        return {"f1": float(curve[found[-1]])}

    assert balance.best_shift(model, 1, measured) == (1.75, {"f1": 35.0})
    assert model.output.bias.tolist() == [0.0, 0.0]
    assert found == list(balance.SHIFTS)
    curve = dict.fromkeys(balance.SHIFTS, 7)
    assert balance.best_shift(model, 1, measured)[0] == 0.0
