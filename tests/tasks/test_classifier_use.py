"""Training and using classifiers: every preset and pooling, every kind of target, files in and answers out."""

from __future__ import annotations

import functools
import json
import random

import numpy as np
import pytest
import torch
from classify_tiny import POOLINGS, PRESETS, settings, texts, tiny, waves

import anaphora as an
from anaphora.cli import main
from anaphora.data.labelled_targets import Targets
from anaphora.errors import DataError, RunError, SettingsError
from anaphora.inference.torch_engine import score_inputs
from anaphora.kinds.measures.classes import (
    class_measures,
    confusion,
    number_measures,
)
from anaphora.tasks.classify.objective import class_weights, drop_words

LACKING = "completely lacking a good script, good actors and a good director"


@functools.cache
def of_preset(preset: str) -> an.Classifier:
    return tiny(preset, steps=6).fit(texts(60), valid=texts(8, seed=1))


# ---------------------------------------------------------------------- promises


@pytest.mark.parametrize("preset", PRESETS)
def test_scores_alone_and_in_a_batch_of_64_are_the_same(preset):
    model = of_preset(preset)
    draw = random.Random(preset)
    asked = [" ".join(draw.choices("abc", k=draw.choice([1, 2, 5, 13, 60]))) for _ in range(63)] + [""]
    inputs = model.inputs_.encode(asked)
    together = score_inputs(model.model_, inputs)
    alone = np.concatenate([score_inputs(model.model_, [x]) for x in inputs])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert together.std() > 1e-3  # the model does look at its input


@pytest.mark.parametrize("preset", PRESETS)
def test_vectors_alone_and_in_a_batch_are_the_same(preset):
    model = tiny(preset, steps=2).fit(waves(20), valid=waves(4, seed=1))
    inputs = model.inputs_.encode([x for x, _ in waves(16, seed=2)])
    alone = np.concatenate([score_inputs(model.model_, [x]) for x in inputs])
    np.testing.assert_allclose(score_inputs(model.model_, inputs), alone, atol=1e-5)


def test_names_of_different_lengths_in_one_batch():
    model = of_preset("lstm last")
    short, long = "a b c", "a b b a c c b a"
    both = model.predict_proba([short, long])
    np.testing.assert_allclose(both[0], model.predict_proba([short])[0], atol=1e-6)


@pytest.mark.parametrize("model", ["conv", "lstm", "transformer"])
def test_it_learns_what_the_first_word_says(model):
    pooling = "last" if model == "lstm" else "max"
    trained = tiny(f"{model} {pooling}", steps=150).fit(texts(400), valid=texts(40, seed=1))
    assert trained.score(texts(100, seed=2))["accuracy"] >= (75 if model == "conv" else 95)


def test_a_bag_cannot_tell_market_from_bear_and_a_network_can():
    rows = [
        ("market falls into bear territory", "finance"),
        ("bear falls into market territory", "animal"),
    ] * 20
    asked = ["Market falls into bear territory", "Bear falls into market territory"]
    bag = tiny("bow", lowercase=True).fit(rows, valid=rows[:2])
    first, second = bag.predict_proba(asked)
    np.testing.assert_allclose(first, second, atol=1e-6)
    network = tiny("rnn last", lowercase=True).fit(rows, valid=rows[:2])
    assert network.predict(asked) == ["finance", "animal"]


def test_what_is_lacking_is_not_praised():
    """The mean of embeddings follows the word good; an LSTM reads what stands before it."""
    small = {"hidden": 48, "embedding": 32, "batch_tokens": 1500, "lr": 5e-3, "vocab_size": 400, "threads": 1}
    bag = tiny("bow", tokens="bpe", **{**small, "steps": 150, "hidden": 1}).fit("reviews")
    assert bag.predict([LACKING]) == ["positive"]
    assert bag.score("reviews")["accuracy"] > 55
    lstm = tiny("lstm last", tokens="bpe", **{**small, "steps": 300}).fit("reviews")
    assert lstm.predict([LACKING]) == ["negative"]
    assert lstm.score("reviews")["accuracy"] > 97


# ---------------------------------------------------------------------- kinds of targets


def test_probabilities_add_up_and_agree_with_the_labels():
    model = of_preset("lstm last")
    asked = [text for text, _ in texts(20, seed=3)]
    shares = model.predict_proba(asked)
    assert shares.shape == (20, 2)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert model.predict(asked) == [model.classes_[i] for i in shares.argmax(1)]


def test_several_labels_at_once():
    rows = [("red round", ["red", "round"]), ("red", ["red"]), ("round", ["round"]), ("dull", [])] * 20
    model = tiny("bow", target="classes", steps=100, lr=0.05).fit(rows, valid=rows[:4])
    asked = ["red round", "round", "dull"]
    assert model.predict(asked) == [["red", "round"], ["round"], []]
    assert model.predict(asked[2:], threshold=1e-6) == [["red", "round"]]
    scores = model.score(rows[:4])
    assert scores["accuracy"] == scores["micro_f1"] == scores["macro_f1"] == 100
    assert (model.predict_proba(["red round"]) > 0.5).all()


def test_numbers():
    rows = [(np.full((1 + i % 3, 1), i / 10), f"{100 + i}") for i in range(60)]
    model = tiny("bow", target="number", steps=300, lr=0.05, tolerance=1.0).fit(rows, valid=rows[::7])
    scores = model.score(rows)
    assert scores["accuracy"] > 90
    assert scores["r2"] > 0.99
    assert model.predict([np.array([[2.0]])])[0] == pytest.approx(120, abs=1)
    with pytest.raises(an.AnaphoraError, match="no probabilities"):
        model.predict_proba([np.array([[2.0]])])


def test_a_class_that_training_does_not_know_counts_as_a_mistake():
    model = of_preset("lstm last")
    scores = model.score([("a b", "vowel"), ("z", "digit")])
    assert scores["unseen_labels"] == 1
    assert scores["accuracy"] <= 50


def test_balanced_classes_weigh_alike():
    weights = class_weights(tiny().fit(texts(30)).targets_, np.array([0, 0, 0, 1]))
    assert weights.tolist() == [4 / 6, 4 / 2]
    rows = [("a b", "rare")] * 4 + [("a b", "often")] * 16
    usual = tiny("bow", steps=200).fit(rows, valid=rows).predict_proba(["a b"])[0]
    even = tiny("bow", steps=200, class_weight="balanced").fit(rows, valid=rows).predict_proba(["a b"])[0]
    assert usual[1] == pytest.approx(0.2, abs=0.03)
    assert even[1] == pytest.approx(0.5, abs=0.03)


def test_smoothed_labels_keep_from_being_certain():
    rows = [("a", "x"), ("b", "y")] * 10
    sure = tiny("bow", steps=300, lr=0.05).fit(rows, valid=rows).predict_proba(["a"])[0, 0]
    smooth = (
        tiny("bow", steps=300, lr=0.05, label_smoothing=0.2).fit(rows, valid=rows).predict_proba(["a"])[0, 0]
    )
    assert sure > 0.99
    assert smooth == pytest.approx(0.9, abs=0.02)  # 0.8 + 0.2/2


def test_dropped_words_leave_the_end_and_padding():
    source = torch.tensor([[9, 9, 3, 0]]).repeat(500, 1)
    dropped = drop_words(source, 0.3)
    assert (dropped[:, 2:] == source[:, 2:]).all()
    share = (dropped[:, :2] == 1).float().mean()
    assert 0.25 < share < 0.35


# ---------------------------------------------------------------------- measures


def test_measures_by_hand():
    truth, found = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0])
    assert confusion(truth, found, 3).tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    names = ("a", "b", "c")
    measured = class_measures(Targets("class", names), [names[i] for i in truth], found)
    scores = measured.report
    assert scores["accuracy"] == 50
    assert scores["by_class"]["a"] == {"precision": 50, "recall": 50, "f1": 50, "examples": 2}
    assert scores["by_class"]["b"]["f1"] == pytest.approx(200 / 3)
    assert scores["macro_f1"] == pytest.approx((50 + 200 / 3 + 0) / 3)
    assert scores["confusion"]["a"] == {"a": 1, "b": 1, "c": 0}
    assert "unseen_labels" not in scores
    for one in measured.measures:  # what resampling draws from adds up to what is reported
        assert one.value(one.statistics.sum(0)) == pytest.approx(scores[one.name])
    several = class_measures(
        Targets("classes", ("a", "b")), ["a", "a|b"], np.array([[1.0, 0.0], [0.0, 1.0]])
    ).report
    assert several["accuracy"] == 50
    assert several["micro_f1"] == pytest.approx(80)  # 2·2/(2 + 3)
    numbers = number_measures(np.array([0.0, 2.0]), np.array([0.01, 3.0]), 0.04).report
    assert numbers["accuracy"] == 50
    assert numbers["mae"] == pytest.approx(0.505)
    assert numbers["r2"] == pytest.approx(1 - (0.0001 + 1) / 2)


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        (["1", "-1e308"], "Example 2 has the label -1e308, too large to compute with"),
        (["1e-200", "2e-200"], "differ by too little to compute with"),
        (["2", "2"], "All 2 training examples have the number 2"),
    ],
)
def test_E11_numbers_to_learn_that_overflow_or_vanish_end_in_a_sentence(numbers, told):
    with pytest.raises(DataError, match=told):
        Targets.learn("number", numbers)


def test_border_3_6_rows_of_unknown_labels_are_wrong_in_every_average():
    """5 of 6 right, the row of a class that training does not know was taken for b: as scikit-learn counts it."""
    targets = Targets("class", ("a", "b"))
    labels, found = ["a", "a", "a", "b", "b", "rare"], np.array([0, 0, 0, 1, 1, 1])
    measured = class_measures(targets, labels, found)
    scores = measured.report
    assert scores["accuracy"] == pytest.approx(100 * 5 / 6)
    assert scores["by_class"]["b"] == pytest.approx(
        {"precision": 200 / 3, "recall": 100, "f1": 80, "examples": 2}
    )
    assert scores["by_class"]["rare"] == {"precision": 0, "recall": 0, "f1": 0, "examples": 1}
    assert scores["macro_f1"] == pytest.approx((100 + 80 + 0) / 3)
    assert scores["confusion"]["rare"] == {"a": 0, "b": 1}
    assert scores["unseen_labels"] == 1
    assert {one.name: one.of_all() for one in measured.measures} == pytest.approx(
        {"accuracy": 100 * 5 / 6, "macro_f1": 60}
    )
    # several labels: a row with one that is unknown cannot be right, and neither average leaves it out
    several = Targets("classes", ("a", "b"))
    labels, found = ["a", "a|rare"], np.array([[1, 0], [1, 0]], np.float32)
    measured = class_measures(several, labels, found)
    scores = measured.report
    assert scores["accuracy"] == 50
    assert scores["micro_f1"] == pytest.approx(80)  # 2 right, 2 given, 3 wanted
    assert scores["macro_f1"] == 50
    assert {one.name: one.of_all() for one in measured.measures} == pytest.approx(
        {"accuracy": 50, "micro_f1": 80, "macro_f1": 50}
    )


# ---------------------------------------------------------------------- files and the command


@pytest.mark.parametrize("preset", ["bow", "conv max", "bilstm attention", "transformer mean"])
def test_a_saved_model_answers_the_same(tmp_path, preset):
    model = of_preset(preset)
    model.save(tmp_path / "m")
    asked = [text for text, _ in texts(10, seed=5)]
    again = an.load(tmp_path / "m")
    assert isinstance(again, an.Classifier)
    np.testing.assert_array_equal(again.predict_proba(asked), model.predict_proba(asked))
    (tmp_path / "m" / "learnt.json").write_text("{}")
    with pytest.raises(RunError):
        an.load(tmp_path / "m")


def test_a_model_of_vectors_comes_back_with_its_scale(tmp_path):
    model = tiny("gru last", scan="rows", scale="all").fit(waves(40), valid=waves(4, seed=1))
    model.save(tmp_path / "m")
    asked = [x for x, _ in waves(5, seed=7)]
    again = an.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(asked), model.predict_proba(asked))
    assert len(set(again.inputs_.mean.tolist())) == 1
    with pytest.raises(DataError, match="has 3 features where the model was trained on 2"):
        again.predict([np.ones((4, 3))])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_are_learnt(pooling):
    model = tiny(f"bilstm {pooling}", steps=60).fit(waves(200), valid=waves(20, seed=1))
    assert model.score(waves(60, seed=2))["accuracy"] >= 90


def say(*words: object) -> list[str]:
    return [str(word) for word in words]


def given(preset: str, **more: object) -> list[str]:
    words = []
    for key, value in settings(preset, **more).items():
        words += ["--set", f"{key}={value}"]
    return words


def test_the_whole_way_through_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text("".join(f"{t}\t{label}\n" for t, label in texts(100)))
    assert main.run(say("train", "classify", "train.tsv", "-o", "run", "--json", *given("lstm last"))) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "classify"
    (tmp_path / "in.txt").write_text("a b\n\nc c a\n")
    assert main.run(["predict", "run", "in.txt"]) == 0
    answers = capsys.readouterr().out.splitlines()
    assert answers[1] == ""
    assert {answers[0], answers[2]} <= {"vowel", "consonant"}
    assert main.run(["predict", "run", "in.txt", "--json", "--set", "top=2"]) == 0
    first, empty, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert sum(first["probabilities"].values()) == pytest.approx(1)
    assert first["top"][0]["label"] == first["output"]
    assert empty["output"] is None
    assert main.run(["predict", "run", "in.txt", "--set", "top=2"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("1\t")
    assert main.run(["score", "run", "train.tsv", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["examples"] == 100
    assert sum(sum(row.values()) for row in scores["confusion"].values()) == 100
    assert main.run(["score", "run", "train.tsv"]) == 0
    assert "confusion" in capsys.readouterr().out
    assert main.run(["train", "classify", "reviews", "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["vocabulary"]["classes"] == 2


def test_vectors_through_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, y = np.random.rand(60, 5, 2), np.arange(60) % 3
    np.savez("train.npz", X=X, y=y)
    np.save("one.npy", X[:2])
    (tmp_path / "two.jsonl").write_text(
        json.dumps(X[0].tolist()) + "\n" + json.dumps({"sequence": X[1].tolist()})
    )
    order = say("train", "classify", "train.npz", "-o", "run", "--json", *given("gru last", steps=3))
    assert main.run(order) == 0
    capsys.readouterr()
    found = []
    for name in ("one.npy", "two.jsonl"):
        assert main.run(["predict", "run", name, "--json"]) == 0
        found.append([json.loads(line)["probabilities"] for line in capsys.readouterr().out.splitlines()])
    for first, second in zip(*found, strict=True):
        assert first == pytest.approx(second)
    (tmp_path / "text.md").write_text("hello")
    assert main.run(["predict", "run", "text.md"]) == 2
    assert "reads vectors" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"good\tpos\nbad\tpos\n", "a classifier needs at least two classes"),
        (b"", "is empty"),
        (b"good\nbad\n", "wrong number of columns"),
        (b"g\xff\tpos\n", "broken UTF-8"),
        (b"good\tpos\nbad\t\n", "an empty side"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, monkeypatch, capsys, content, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.tsv").write_bytes(content)
    assert main.run(["train", "classify", "bad.tsv", "-o", "run"]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"model": "bow", "pooling": "max"}, "pooling has no effect on the preset bow"),
        ({"model": "transformer", "hidden": 10, "heads": 4}, "cannot be divided"),
        ({"target": "number", "class_weight": "balanced"}, "needs classes"),
        ({"target": "classes", "label_smoothing": 0.1}, "exactly one class"),
        ({"pooling": "mena"}, "Did you mean mean?"),
        ({"target": "number", "metric": "macro_f1"}, "needs classes"),
    ],
)
def test_settings_that_do_not_fit_are_refused(asked, told):
    with pytest.raises(SettingsError, match=told.replace("?", r"\?")):
        an.Classifier(**asked)


def test_inputs_of_another_kind_are_refused():
    model = of_preset("lstm last")
    with pytest.raises(DataError, match=r"write \[text\]"):
        model.predict("a b")
    with pytest.raises(DataError, match="input 1 is a int"):
        model.predict([3])
    with pytest.raises(an.AnaphoraError, match="has not been trained"):
        tiny().predict(["a"])


@pytest.mark.parametrize("model", ["ngrams", "bow"])
def test_dev_data_of_other_labels_are_refused(tmp_path, model):
    rows = [("good film", "pos"), ("bad film", "neg")] * 6
    with pytest.raises(
        DataError, match="the dev data have no label of the training data: '1' is none of neg, pos;"
    ):
        an.Classifier(model).fit(rows, valid=[("good", "1"), ("bad", "0")], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    an.Classifier("ngrams").fit(rows, valid=[("good", "1"), ("bad", "neg")])  # one is enough to measure by
    an.Classifier("ngrams").fit(
        [(f"text {i}", f"label {i}") for i in range(6)]
    )  # held out: each is the only one


def test_data_of_other_labels_are_not_measured(tmp_path):
    model = an.Classifier("ngrams").fit([("good film", "pos"), ("bad film", "neg")] * 6)
    with pytest.raises(
        DataError, match="the data have no label of the training data: '1' is none of neg, pos"
    ):
        model.score([("good", "1"), ("bad", "0")])
    tagger = an.Tagger("hmm").fit([("dogs run", "N V")] * 6)
    with pytest.raises(
        DataError, match="the data have no label of the training data: 'B-PER' is none of N, V"
    ):
        tagger.score([("Ann runs", "B-PER B-X")])


def test_sentences_of_one_word_are_reported():
    rows = [("dogs", "N"), ("run", "V")] * 15
    with pytest.warns(UserWarning, match=r"each of the 30 sentences has one word; add a column sentence_id"):
        an.Tagger("hmm").fit(rows, valid=rows[:2])


def test_dev_tags_that_training_never_saw_are_refused():
    with pytest.raises(DataError, match="no label of the training data: 'B-PER' is none of N, V"):
        an.Tagger("hmm").fit([("dogs run", "N V")] * 6, valid=[("Ann runs", "B-PER B-X")])


def test_long_texts_are_learned_from_as_far_as_they_are_read():
    rows = [(f"{word} " * 3 + "and so on " * 20, word) for word in ("yes", "no")] * 20
    quick = {"tokens": "word", "max_tokens": 8, "embedding": 8, "steps": 40, "lr": 0.05, "batch_tokens": 200}
    with pytest.warns(
        UserWarning, match="40 of 40 training texts were longer than max_tokens = 8 and were cut"
    ):
        m = an.Classifier("bow", **quick).fit(rows, valid=rows[:4])
    with pytest.warns(UserWarning, match="1 of 1 inputs were longer"):
        assert m.predict([rows[0][0]]) == ["yes"]
