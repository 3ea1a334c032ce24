"""The preset ngrams as it is used: fitted, saved, loaded, asked, refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from classify_tiny import phrases

import anaphora as an
from anaphora.cli import main
from anaphora.errors import DataError, RunError, SettingsError


def test_endings_of_words_that_were_never_seen_decide():
    model = an.Classifier("ngrams").fit(phrases(200), valid=phrases(20, 1))
    assert model.score(phrases(100, 2))["accuracy"] >= 99
    assert model.result_.metrics["accuracy"] >= 99
    assert model.result_.best == model.result_.metrics["accuracy"]
    words_only = an.Classifier("ngrams", char_ngrams=0).fit(phrases(200), valid=phrases(20, 1))
    assert words_only.score(phrases(100, 2))["accuracy"] <= 70


def test_order_is_known_as_far_as_n_grams_reach():
    rows = [("market falls on bear", "a"), ("bear falls on market", "b")] * 20
    pairs = an.Classifier("ngrams", word_ngrams=2, char_ngrams=0).fit(rows, valid=rows[:4])
    assert pairs.score(rows)["accuracy"] == 100
    single = an.Classifier("ngrams", word_ngrams=1, char_ngrams=0).fit(rows, valid=rows[:4])
    assert single.score(rows)["accuracy"] == 50


def test_a_run_says_the_same_when_it_is_loaded_or_fitted_again(tmp_path):
    model = an.Classifier("ngrams").fit(phrases(60), valid=phrases(8, 1), out=tmp_path / "run")
    asked = [text for text, _ in phrases(20, 3)] + [""]
    found = model.predict_proba(asked)
    np.testing.assert_array_equal(an.load(tmp_path / "run").predict_proba(asked), found)
    alone = np.concatenate([model.predict_proba([text]) for text in asked])
    np.testing.assert_allclose(alone, found, atol=1e-6)
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    an.Classifier.resume(tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(an.load(tmp_path / "saved").predict_proba(asked), found)


def test_several_classes_and_many():
    rows = [("red round", "red|round"), ("red", "red"), ("round", "round"), ("plain", "-")] * 8
    several = an.Classifier("ngrams", target="classes").fit(rows, valid=rows[:4])
    assert several.predict(["red", "round red", "plain"]) == [["red"], ["red", "round"], []]
    colours = [(f"a {name} thing", name) for name in ("red", "green", "blue")] * 6
    many = an.Classifier("ngrams").fit(colours, valid=colours[:3])
    assert many.predict(["blue", "red", "some green"]) == ["blue", "red", "green"]
    np.testing.assert_allclose(many.predict_proba(["blue"]).sum(), 1)


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with open("train.tsv", "w") as file:
        file.writelines(f"{text}\t{label}\n" for text, label in phrases(60))
    assert main.run(["train", "classify", "train.tsv", "--model", "ngrams", "-o", "run"]) == 0
    capsys.readouterr()
    with open("asked.txt", "w") as file:
        file.write("the zzzzful one\n\nthe unzzzz one\n")
    assert main.run(["predict", "run", "asked.txt"]) == 0
    assert capsys.readouterr().out.splitlines() == ["good", "", "bad"]
    assert main.run(["score", "run", "train.tsv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 100


def test_mistakes_are_told_in_a_sentence(tmp_path):
    with pytest.raises(SettingsError, match="target = 'number'"):
        an.Classifier("ngrams", target="number")
    with pytest.raises(SettingsError, match="hidden has no effect"):
        an.Classifier("ngrams", hidden=8)
    with pytest.raises(SettingsError, match="penalty has no effect"):
        an.Classifier("lstm", penalty=1.0)
    with pytest.raises(DataError, match="reads texts, but the data are vectors"):
        an.Classifier("ngrams").fit([(np.ones((3, 2)), "a"), (np.zeros((3, 2)), "b")] * 4)
    model = an.Classifier("ngrams").fit(phrases(20), valid=phrases(4), out=tmp_path / "run")
    with pytest.raises(DataError, match="not a text"):
        model.predict([3])
    learnt = tmp_path / "run" / "learnt.json"
    broken = json.loads(learnt.read_text())
    broken["inputs"]["known"] = broken["inputs"]["known"][:-1]
    learnt.write_text(json.dumps(broken))
    with pytest.raises(RunError):
        an.load(tmp_path / "run")


def test_words_and_characters_may_have_a_regression_each(tmp_path):
    m = an.Classifier("ngrams", apart=True).fit(phrases(60), valid=phrases(8, 1), out=tmp_path / "run")
    asked = [text for text, _ in phrases(9, 3)] + [""]
    found = m.predict_proba(asked)
    np.testing.assert_array_equal(an.load(tmp_path / "run").predict_proba(asked), found)
    together = an.Classifier("ngrams").fit(phrases(60), valid=phrases(8, 1)).predict_proba(asked)
    assert not np.allclose(found, together)
    assert (found.argmax(1) == together.argmax(1))[:-1].all()
