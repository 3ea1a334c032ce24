"""The preset of a classifier that is taken where the user names none: by what the data are, and how many."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

import anaphora as an
from anaphora.cli import main
from anaphora.data.sources import report
from anaphora.tasks.suiting import classify as suiting

TEXTS = [("a good film", "yes"), ("a bad film", "no"), ("so good", "yes"), ("so bad", "no")] * 6
WORDS = [("goodness", "yes"), ("badness", "no")] * 12
WAVES = [
    (np.sin(np.arange(30.0) * pace + begin)[:, None], name)
    for begin in range(8)
    for pace, name in ((0.3, "slow"), (0.9, "quick"))
]
TINY = {"hidden": 4, "steps": 1, "valid_every": 1, "device": "cpu"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (TEXTS, "assumed, for 23 training texts, which are few for a network: model=ngrams"),
        (WORDS, "assumed, for 23 training texts, which are few for a network: model=ngrams"),
        (WAVES, "assumed, for 15 training sequences, which are few for a network: model=rocket"),
    ],
)
def test_few_examples_are_learned_in_one_go(data, why):
    m, said = an.Classifier(), []
    with report.reported(said.append):
        m.fit(data)
    assert why in said
    assert m.settings_.model == why.rpartition("=")[2]
    assert m.predict([x for x, _ in data[:2]]) == [label for _, label in data[:2]]


@pytest.mark.parametrize("name", ["MOST_TEXTS", "MOST_TEXT"])
def test_more_texts_than_n_grams_are_quick_for_are_left_to_a_network(name, monkeypatch):
    monkeypatch.setattr(suiting, name, 10)
    assert chosen(TEXTS) == "lstm"


def test_more_single_words_are_left_to_a_network(monkeypatch):
    monkeypatch.setattr(suiting, "FEW_WORDS", 10)
    assert chosen(WORDS) == "lstm"
    assert chosen(TEXTS) == "ngrams"  # these have spaces in them


@pytest.mark.parametrize("name", ["MANY", "MOST_NUMBERS"])
def test_more_sequences_than_convolutions_are_quick_for_are_left_to_a_network(name, monkeypatch):
    monkeypatch.setattr(suiting, name, 10)
    assert chosen(WAVES) == "lstm"


def learnt(data, **given):
    """A classifier that knows its data and settings, and is not trained."""
    m = an.Classifier(**given)
    m._learn(m._open(data, None, spill=None)[0])
    return m


def chosen(data, **given):
    """The preset that would be trained, without training it."""
    return learnt(data, **given).settings_.model


def test_many_classes_are_left_to_a_network_and_have_fewer_n_grams(monkeypatch):
    topics = [(f"all about topic {i} and its part {i}", f"t{i}") for i in range(12)] * 3
    assert chosen(topics) == "ngrams"
    monkeypatch.setattr(suiting, "MOST_WEIGHTS", 120)
    said = []
    with report.reported(said.append):
        m = learnt(topics, model="ngrams")
    assert "assumed, for 12 classes: vocab_size=10" in said
    assert len(m.inputs_.grams.known) == 10
    assert learnt(topics, model="ngrams", vocab_size=30).settings_.vocab_size == 30
    monkeypatch.setattr(suiting, "MOST_CLASSES", 10)
    assert chosen(topics) == "lstm"


def test_labels_that_are_many_numbers_with_fractions_are_doubted():
    rated = [(f"a film of worth {i}", str(i / 4)) for i in range(24)] * 3
    with pytest.warns(UserWarning, match=r"the 24 labels are numbers \(0.0, 0.25 …\).*set target=number"):
        chosen(rated)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen([(text, str(i)) for i, (text, _) in enumerate(rated[:24])] * 3)  # whole numbers name classes
        chosen([(text, label) for text, label in rated if float(label) < 4])  # as few ratings do


def test_who_says_something_about_a_network_or_names_an_embedded_corpus_gets_a_network():
    assert an.Classifier(**TINY).fit(TEXTS).settings_.model == "lstm"
    assert (
        an.Classifier("bow", embedding=4, **{k: TINY[k] for k in ("steps", "device")})
        .fit(TEXTS)
        .settings_.model
        == "bow"
    )
    assert chosen("reviews") == "lstm"
    assert chosen("adding:10", target="number") == "lstm"


def test_settings_that_every_preset_has_leave_the_choice_open():
    films = [("funny and short", ["funny", "short"]), ("short", ["short"]), ("long and dull", [])] * 8
    m = an.Classifier(target="classes", threshold=0.4).fit(films)
    assert m.settings_.model == "ngrams"
    assert m.settings_.threshold == 0.4
    rated = an.Classifier(target="number").fit([("a good film", 1.0), ("a bad film", -1.0)] * 12)
    assert rated.settings_.model == "ngrams"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that n-grams need no device is no news to one who has not named them
        assert an.Classifier(device="cpu", threads=1).fit(TEXTS).settings_.model == "ngrams"


@pytest.mark.parametrize("kind", ["class", "many", "classes"])
def test_balanced_classes_are_found_more_often(kind):
    """Of 40 texts 4 are spam, and share their words with others: only where classes weigh alike is one of them found."""
    several, rest = kind == "classes", "classes" if kind == "classes" else "class"
    rows = [
        ("buy it now", "spam"),
        ("buy it now", "mail"),
        ("buy it now", "mail"),
        ("see you soon", "mail"),
    ] * 4
    rows += [("see you there", "note" if kind == "many" else "mail")] * 24
    rows = [(text, [label] if several else label) for text, label in rows]
    plain, balanced = (
        an.Classifier(target=rest, **how).fit(rows, valid=rows) for how in ({}, {"class_weight": "balanced"})
    )
    assert plain.settings_.model == balanced.settings_.model == "ngrams"
    spam = [m.classes_.index("spam") for m in (plain, balanced)]
    before, after = (
        m.predict_proba(["buy it now"])[0][i] for m, i in zip((plain, balanced), spam, strict=True)
    )
    assert after > before + 0.05


def test_each_fit_chooses_afresh_and_a_run_keeps_what_was_chosen(tmp_path):
    m = an.Classifier()
    m.fit(TEXTS, out=tmp_path / "texts")
    m.fit(WAVES, out=tmp_path / "waves")
    assert m.settings_.model == "rocket"
    m.fit(TEXTS)
    assert m.settings_.model == "ngrams"
    assert repr(m) == "Classifier()"
    for name, preset in (("texts", "ngrams"), ("waves", "rocket")):
        config = json.loads((tmp_path / name / "config.json").read_text(encoding="utf-8"))
        assert config["settings"]["model"] == preset
        assert an.load(tmp_path / name).settings_.model == preset


def test_the_command_says_what_it_took(tmp_path, capsys):
    data = tmp_path / "texts.tsv"
    data.write_text("".join(f"{text}\t{label}\n" for text, label in TEXTS), encoding="utf-8")
    assert main.run(["train", "classify", str(data), "-o", str(tmp_path / "run")]) == 0
    assert "model=ngrams" in capsys.readouterr().err
    assert main.run(["train", "classify", str(data), "--dry-run"]) == 0
    assert "ngrams" in "".join(capsys.readouterr())


def test_the_list_of_presets_marks_what_may_be_taken(capsys):
    assert main.run(["models", "classify", "--json"]) == 0
    presets = json.loads(capsys.readouterr().out)["classify"]["presets"]
    assert {name for name, facts in presets.items() if facts["assumed"]} == {"ngrams", "rocket"}
    assert main.run(["models", "classify"]) == 0
    shown = capsys.readouterr()
    assert "  + ngrams" in shown.out
    assert "  * lstm" in shown.out
    assert "Assumed for texts." in " ".join(shown.out.split())
    assert "+ is assumed instead" in shown.err
    assert "ngrams (assumed for texts)" in (an.Classifier.__doc__ or "")
