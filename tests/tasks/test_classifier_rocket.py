"""The preset rocket as it is used: fitted, saved, loaded, asked, refused, and named where it is better than a network."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError, DataError, SettingsError
from anaphora.tasks.suiting import classify as suiting
from anaphora.tasks.suiting.rival import rival_of
from anaphora.training.run import RunFolder
from anaphora.training.weights import load_weights, pack

QUICK = {"thresholds": 1}


def beats(count, seed=0, features=2):
    """Noise with a slow or a quick wave in its last feature, beginning anywhere; lengths differ."""
    draw = np.random.RandomState(seed)
    rows = []
    for i in range(count):
        time = draw.randint(30, 60)
        x = 0.5 * draw.standard_normal((time, features))
        x[:, -1] += np.sin(np.arange(time) * (0.9, 0.3, 0.6)[i % 3] + draw.uniform(0, 6))
        rows.append((x.astype(np.float32), ("quick", "slow", "middle")[i % 3]))
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rocket") / "run"
    an.Classifier("rocket", **QUICK).fit(beats(60), valid=beats(15, 1), out=folder)
    return folder


def test_waves_that_begin_anywhere_are_told_apart(run):
    model = an.load(run)
    assert model.score(beats(60, 2))["accuracy"] >= 90
    shares = model.predict_proba([x for x, _ in beats(6, 3)])
    np.testing.assert_allclose(shares.sum(1), 1)
    assert model.classes_ == ["middle", "quick", "slow"]


def test_a_run_says_the_same_when_it_is_loaded_or_fitted_again(run, tmp_path):
    rows = beats(60)
    model = an.Classifier("rocket", **QUICK).fit(rows, valid=beats(15, 1), out=tmp_path / "run")
    asked = [x for x, _ in beats(20, 3)] + [np.ones((1, 2), np.float32)]
    found = model.predict_proba(asked)
    np.testing.assert_array_equal(an.load(tmp_path / "run").predict_proba(asked), found)
    tensors, before = (load_weights(folder / "model.safetensors")[0] for folder in (tmp_path / "run", run))
    assert all(torch.equal(value, before[name]) for name, value in tensors.items())
    alone = np.concatenate([model.predict_proba([x]) for x in asked])
    np.testing.assert_allclose(alone, found, atol=1e-6)
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(an.load(tmp_path / "saved").predict_proba(asked), found)
    other = an.Classifier("rocket", seed=5, **QUICK).fit(rows, valid=beats(15, 1)).predict_proba(asked)
    assert not np.array_equal(other, found)


def test_several_classes_and_numbers():
    draw = np.random.RandomState(0)
    several, measured = [], []
    for i in range(48):
        up, wave = i % 2, i // 2 % 2
        x = 0.1 * draw.standard_normal((40, 1)) + up * np.linspace(0, 3, 40)[:, None]
        x += wave * np.sin(np.arange(40) * 0.9)[:, None]
        labels = "|".join(name for name, there in (("up", up), ("wave", wave)) if there) or "-"
        several.append((x.astype(np.float32), labels))
        level = draw.uniform(-1, 1)
        measured.append(
            ((0.1 * draw.standard_normal((30, 1)) + level).astype(np.float32), f"{5 * level:.3f}")
        )
    model = an.Classifier("rocket", target="classes", **QUICK).fit(several, valid=several[:4])
    assert model.predict([x for x, _ in several[:4]]) == [[], ["up"], ["wave"], ["up", "wave"]]
    number = an.Classifier("rocket", target="number", **QUICK).fit(measured[:40], valid=measured[40:])
    found = number.predict([x for x, _ in measured[40:]])
    wanted = [float(label) for _, label in measured[40:]]
    assert np.corrcoef(found, wanted)[0, 1] > 0.95
    trace = number.probe(measured[0][0], what=("attribution",))
    assert trace.facts["attribution"]["of"] == "the output"


def test_what_an_answer_rests_on(run):
    x = np.zeros((48, 2), np.float32)
    x[:24, 1] = np.sin(np.arange(24) * 0.9)  # the wave is in the first half alone
    trace = an.load(run).probe(x, "quick", what=("attribution",))
    falls = trace.arrays["occlusion"].values
    assert falls.shape == (48,)
    assert abs(falls[:24]).sum() > abs(falls[24:]).sum()
    assert trace.facts["attribution"]["of"] == "log p(quick)"
    with pytest.raises(DataError, match="is not a class"):
        an.load(run).probe(x, "loud", what=("attribution",))


def test_no_length_is_too_long(run):
    model = an.load(run)
    with_more = np.concatenate([beats(1, 9)[0][0]] * 40)  # more steps than max_tokens of a network
    assert len(model.predict([with_more])) == 1


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    draw = np.random.RandomState(0)
    wave = np.array([np.sin(np.arange(40) * (0.3, 0.9)[i % 2] + draw.uniform(0, 6)) for i in range(60)])
    labels = np.array([("slow", "quick")[i % 2] for i in range(60)])
    np.savez("train.npz", X=wave[:40, :, None], y=labels[:40])
    np.savez("test.npz", X=wave[40:, :, None], y=labels[40:])
    order = ["train", "classify", "train.npz", "--model", "rocket", "-o", "run"]
    assert main.run(order) == 0
    assert "fitting rocket to" in capsys.readouterr().err
    assert main.run(["score", "run", "test.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 100
    np.save("two.npy", wave[40:42, :, None])
    assert main.run(["predict", "run", "two.npy"]) == 0
    assert capsys.readouterr().out.split() == ["slow", "quick"]
    assert main.run(["export", "run", "--to", "torch", "-o", "out"]) == 2
    assert "the preset rocket has no form in --to torch" in capsys.readouterr().err


def test_mistakes_are_told_in_a_sentence(run):
    with pytest.raises(SettingsError, match="hidden has no effect"):
        an.Classifier("rocket", hidden=8)
    with pytest.raises(SettingsError, match="thresholds has no effect"):
        an.Classifier("lstm", thresholds=2)
    with pytest.raises(DataError, match="rocket reads vectors, but the data are texts"):
        an.Classifier("rocket").fit([("a b", "x"), ("c d", "y")] * 6)
    model = an.load(run)
    with pytest.raises(DataError, match="features"):
        model.predict([np.ones((5, 3))])
    with pytest.raises(AnaphoraError, match=r"rocket has no form in --to torch, .* export it to onnx"):
        model.export("nowhere", to="torch")


def test_a_network_that_is_worse_is_told_so(tmp_path):
    tiny = {"hidden": 4, "steps": 2, "valid_every": 2, "save_every": 2, "batch_tokens": 400, "device": "cpu"}
    many = an.Classifier("lstm", **tiny).fit(beats(60), valid=beats(60, 1), out=tmp_path / "many")
    found = rival_of(many, tmp_path / "many")
    assert (found.preset, found.examples, found.crossed) == ("rocket", 60, 0)
    assert found.better
    assert "on the same 60 dev sequences" in found.advice
    assert "--model rocket is the better choice" in found.advice
    few = an.Classifier("lstm", **tiny).fit(beats(60), valid=beats(9, 1), out=tmp_path / "few")
    found = rival_of(few, tmp_path / "few")
    assert (found.examples, found.crossed) == (9, 60)
    assert found.reached > 80
    assert "in cross-validation on the 60 training sequences" in str(found)
    scarce = an.Classifier("lstm", **tiny).fit(beats(12), valid=beats(9, 1), out=tmp_path / "scarce")
    assert rival_of(scarce, tmp_path / "scarce") is None


def test_a_network_reads_its_longest_sequence_whole_unless_it_is_told_how_long():
    tiny = {"hidden": 4, "steps": 1, "valid_every": 1, "batch_tokens": 3000, "device": "cpu"}
    rows = [(np.full((1100 + i, 1), i % 2, np.float32), "ab"[i % 2]) for i in range(8)]
    m = an.Classifier("gru", **tiny).fit(rows, valid=rows[:2])
    assert m.settings_.max_tokens == 1107
    short = an.Classifier("gru", max_tokens=1104, **tiny).fit(rows, valid=rows[:2])
    assert short.settings_.max_tokens == 1104


def test_of_very_many_sequences_fewer_features_are_counted(monkeypatch):
    monkeypatch.setattr(suiting, "MANY", 40)
    many = an.Classifier("rocket").fit(beats(60), valid=beats(9, 1))
    assert many.settings_.thresholds == 1
    assert not many.settings_.places
    asked = an.Classifier("rocket", thresholds=2).fit(beats(60), valid=beats(9, 1))
    assert asked.settings_.thresholds == 2


def test_a_run_from_before_places_were_learned_answers_as_it_did(tmp_path):
    run = tmp_path / "run"
    m = an.Classifier("rocket", places=False, **QUICK).fit(beats(30), valid=beats(9, 1), out=run)
    config = json.loads((run / "config.json").read_text())
    assert config["settings"].pop("places") is False
    (run / "config.json").write_text(json.dumps(config))
    tensors, facts = load_weights(run / "model.safetensors")
    facts["files"] = RunFolder(run).fingerprints()
    (run / "model.safetensors").write_bytes(pack(tensors, facts=facts))
    asked = [x for x, _ in beats(6, 3)]
    np.testing.assert_array_equal(an.load(run).predict_proba(asked), m.predict_proba(asked))
