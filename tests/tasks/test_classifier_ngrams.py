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
    with pytest.raises(SettingsError, match="margin needs exactly one class"):
        an.Classifier("ngrams", target="number", margin=True)
    with pytest.raises(SettingsError, match="margin needs exactly one class"):
        an.Classifier("ngrams", target="classes", margin=True)
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


def points(rows, seed=0):
    """Texts whose number is the sum of what their words are worth."""
    worth = {"awful": -2.0, "poor": -1.0, "plain": 0.0, "fine": 1.0, "superb": 2.0}
    random = np.random.RandomState(seed)
    drawn = [random.choice(list(worth), size=4) for _ in range(rows)]
    return [(" ".join(words), sum(worth[word] for word in words)) for words in drawn]


def test_a_number_is_learned(tmp_path):
    model = an.Classifier("ngrams", target="number", tolerance=0.5)
    model.fit(points(150), valid=points(20, 1), out=tmp_path / "run")
    assert model.settings_.penalty == 1.0
    found = model.score(points(100, 2))
    assert found["r2"] > 0.8
    assert model.result_.metric == "loss"
    assert not model.result_.greater_is_better
    low, high = model.predict(["awful awful poor poor", "superb superb fine superb"])
    assert low < -3 < 3 < high
    assert an.load(tmp_path / "run").predict(["fine"]) == model.predict(["fine"])


def kinds(rows, seed=0):
    """Texts of four kinds, of which two are rare, told apart by one word among others."""
    random = np.random.RandomState(seed)
    words = [f"w{i}" for i in range(200)]
    names = random.choice(["news", "sport", "food", "art"], p=[0.6, 0.3, 0.06, 0.04], size=rows)
    return [
        (" ".join([*random.choice(words, 12), f"{name[:2]}{random.randint(4)}"]), str(name)) for name in names
    ]


def test_three_classes_have_a_margin_unless_the_user_says_otherwise(tmp_path):
    model = an.Classifier("ngrams", char_ngrams=0).fit(kinds(200), valid=kinds(20, 1), out=tmp_path / "run")
    assert (model.settings_.margin, model.settings_.penalty) == (True, 1.0)
    judged = kinds(200, 2)
    logistic = an.Classifier("ngrams", char_ngrams=0, margin=False, penalty=0.3).fit(
        kinds(200), valid=kinds(20, 1)
    )
    assert not logistic.settings_.margin
    assert model.score(judged)["macro_f1"] > logistic.score(judged)["macro_f1"]
    found = model.predict_proba([text for text, _ in judged])
    np.testing.assert_allclose(found.sum(1), 1)
    place = {name: i for i, name in enumerate(model.classes_)}
    right = found[range(200), [place[label] for _, label in judged]]
    other = logistic.predict_proba([text for text, _ in judged])[
        range(200), [place[label] for _, label in judged]
    ]
    assert np.log(right).mean() > np.log(other).mean()  # and it knows better how sure it is
    np.testing.assert_array_equal(
        an.load(tmp_path / "run").predict_proba(["w1 ar2"]), model.predict_proba(["w1 ar2"])
    )
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    an.Classifier.resume(tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    two = an.Classifier("ngrams").fit(phrases(20), valid=phrases(4))
    assert not two.settings_.margin
    few = [("red thing", "red"), ("green thing", "green"), ("blue thing", "blue")]
    assert an.Classifier("ngrams", min_count=1).fit(few, valid=few).predict(["green"]) == ["green"]
