"""Defaults that depend on the amount of data, and the note that n-grams would do better."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from classify_tiny import phrases

import anaphora as an
from anaphora.cli import main
from anaphora.data.sources.report import reported
from anaphora.errors import SettingsError
from anaphora.tasks.suiting import rival
from anaphora.tasks.suiting.rival import rival_of

TINY = {"embedding": 4, "steps": 2, "device": "cpu", "warmup": 0}


def test_few_texts_are_read_as_words_and_that_is_reported(tmp_path):
    said = []
    with reported(said.append):
        m = an.Classifier("bow", **TINY).fit(phrases(300), out=tmp_path / "run")
    assert (m.settings_.tokens, m.settings_.vocab_size, m.settings_.dropout) == ("word", 20_000, 0.5)
    assert any(
        line.startswith("assumed, for 285 training texts: ") and "tokens=word" in line for line in said
    )
    settings = json.loads((tmp_path / "run/config.json").read_text())["settings"]
    assert (settings["tokens"], settings["dropout"]) == ("word", 0.5)
    assert an.load(tmp_path / "run").settings_.tokens == "word"


def test_what_was_given_stays():
    m = an.Classifier("bow", dropout=0.2, **TINY).fit(phrases(300))
    assert (m.settings_.tokens, m.settings_.dropout) == ("word", 0.2)
    m = an.Classifier("bow", tokens="bpe", vocab_size=60, **TINY).fit(phrases(300))
    assert (m.settings_.tokens, m.settings_.dropout, m.settings_.vocab_size) == ("bpe", 0.3, 60)


@pytest.mark.parametrize("count", [60, None])
def test_examples_and_embedded_corpora_are_left_alone(count):
    data = phrases(count) if count else "reviews"
    m = an.Classifier("bow", vocab_size=60, **TINY)
    m.plan(data)
    assert m.settings_.tokens == "bpe"


def test_the_rival_is_measured_on_the_same_dev_data(tmp_path):
    dev = phrases(60, 1)
    m = an.Classifier("bow", **TINY).fit(phrases(150), valid=dev, out=tmp_path / "run")
    found = rival_of(m, tmp_path / "run")
    assert found.examples == 60
    assert found.value == m.result_.metrics["accuracy"]
    whole = an.Classifier("ngrams", word_ngrams=2, char_ngrams=5).fit(phrases(150), valid=dev)
    assert found.reached == whole.result_.metrics["accuracy"]
    assert found.better
    assert "ngrams reaches accuracy" in str(found)


def test_with_few_dev_texts_the_rival_is_cross_validated_on_the_training_texts(tmp_path):
    m = an.Classifier("bow", **TINY).fit(phrases(150), valid=phrases(12, 1), out=tmp_path / "run")
    found = rival_of(m, tmp_path / "run")
    assert (found.crossed, found.examples) == (150, 12)
    assert found.reached > 90
    assert f"in cross-validation on the 150 training texts, fitted in {found.seconds:.0f} s" in str(found)
    # of 12 texts, 6 right: 50 ± 2 · 13.4
    told = [
        (replace(found, reached=n, value=50.0).better, replace(found, reached=n, value=50.0).open)
        for n in (60, 90)
    ]
    assert told == [(False, True), (True, False)]
    assert not replace(found, reached=100.0, value=100.0).advice  # neither can be better
    assert "too few to tell" not in m._advice(tmp_path / "run") or not found.better


def test_of_numbers_the_rival_is_judged_by_the_variance_it_explains(tmp_path):
    words = ["awful", "poor", "fine", "superb"]
    rows = [
        (f"{a} {b} {c}", float(i + j + k))
        for i, a in enumerate(words)
        for j, b in enumerate(words)
        for k, c in enumerate(words)
    ]
    rows = [(f"{text} {n}", value) for n in range(4) for text, value in rows]
    network = {"target": "number", "embedding": 4, "steps": 2, "batch_tokens": 200, "holdout": 60}
    m = an.Classifier("bow", **network).fit(rows, out=tmp_path / "run")
    found = rival_of(m, tmp_path / "run")
    assert (found.metric, found.examples) == ("r2", 60)
    assert found.reached > 80
    assert found.value == pytest.approx(100 * m.result_.metrics["r2"])
    assert "the preset ngrams reaches r2" in found.advice
    assert not replace(found, value=found.reached - 1.5).advice  # nearly as good
    scarce = an.Classifier("bow", **(network | {"holdout": 20})).fit(rows, out=tmp_path / "scarce")
    assert rival_of(scarce, tmp_path / "scarce") is None


def test_there_is_no_rival_where_it_says_nothing(tmp_path, monkeypatch):
    few = an.Classifier("bow", **TINY).fit(phrases(60), valid=phrases(60, 1), out=tmp_path / "few")
    assert rival_of(few, tmp_path / "few") is None
    counted = an.Classifier("ngrams", char_ngrams=3).fit(
        phrases(150), valid=phrases(60, 1), out=tmp_path / "direct"
    )
    assert rival_of(counted, tmp_path / "direct") is None
    monkeypatch.setattr(rival, "MOST_TEXT", 100)
    long = an.Classifier("bow", **TINY).fit(phrases(150), valid=phrases(60, 1), out=tmp_path / "long")
    assert rival_of(long, tmp_path / "long") is None


def test_the_command_notes_the_better_choice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("train.tsv", phrases(300)), ("dev.tsv", phrases(60, 1))):
        (tmp_path / name).write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    order = [
        "train",
        "classify",
        "train.tsv",
        "--valid",
        "dev.tsv",
        "--model",
        "bow",
        "--steps",
        "2",
        "--set",
        "embedding=4",
    ]
    assert main.run([*order, "-o", "run"]) == 0
    said = capsys.readouterr().err
    assert "assumed, for 300 training texts: tokens=word" in said
    assert "Note: the preset ngrams reaches accuracy" in said
    assert "--model ngrams is the better choice." in said
    assert main.run([*order, "-o", "again", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "better choice" in told["advice"]
    assert (told["assumed"]["tokens"], told["assumed"]["dropout"]) == ("word", 0.5)
    assert not {"steps", "embedding", "min_steps"} & told["assumed"].keys()


def test_a_dry_run_shows_what_is_assumed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in phrases(300)))
    order = ["train", "classify", "train.tsv", "--model", "bow", "--set", "embedding=4", "--dry-run"]
    assert main.run([*order, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"]["tokens"] == told["assumed"]["tokens"] == "word"
    assert (told["settings"]["steps"], told["settings"]["min_steps"]) == (600, 600)
    assert main.run(order) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["+", "tokens", "word"] in lines
    assert ["*", "embedding", "4"] in lines
    assert ["steps", "600"] in lines


def sequences(count):
    """Texts without spaces, no two alike: those with AB in them, and those without."""
    draw = random.Random(5)
    words = {"".join(draw.choices("ABCDEF", k=draw.randrange(6, 12))) for _ in range(2 * count)}
    return [(word, "yes" if "AB" in word else "no") for word in sorted(words)[:count]]


@pytest.mark.parametrize("model", ["lstm", "conv"])
def test_single_words_are_read_by_their_letters_and_that_is_reported(model):
    said = []
    m = an.Classifier(model, hidden=8)
    with reported(said.append):
        m.plan(sequences(300))
    assert m.settings_.tokens == "char"
    assert "assumed, for single words, which are read by their letters: tokens=char" in said
    few = [(f"{word} {word}", label) for word, label in sequences(300)]
    m.plan(few[:15] + sequences(300)[15:])  # some may have spaces in them
    assert m.settings_.tokens == "char"


@pytest.mark.parametrize(
    ("model", "given", "tokens"), [("bow", {}, "bpe"), ("lstm", {"tokens": "word"}, "word")]
)
def test_single_words_leave_bags_and_what_was_given_alone(model, given, tokens):
    m = an.Classifier(model, embedding=4, **given)
    m.plan(sequences(300))
    assert m.settings_.tokens == tokens
    sentences = an.Classifier("lstm")
    sentences.plan([(f"the {word}", label) for word, label in sequences(300)])
    assert sentences.settings_.tokens == "word"


def tagged(count, long=4):
    return [([f"w{i % 50}"] * long, ["A" if i % 2 else "B"] * long) for i in range(count)]


def test_taggers_of_many_words_are_wider_and_examples_are_left_alone():
    found = {}
    for count, long in ((100, 4), (600, 4), (1300, 100)):
        said = []
        m = an.Tagger("bilstm", characters="none")
        with reported(said.append):
            steps = m.plan(tagged(count, long))["steps"]
        s = m.settings_
        found[count] = (
            s.hidden,
            s.dropout,
            s.epochs,
            steps,
            s.batch_tokens,
            any("assumed" in one for one in said),
        )
    assert found == {
        100: (128, 0.4, 16, 1000, 1024, False),
        600: (128, 0.5, 32, 1000, 1024, True),
        1300: (200, 0.5, 20, 2000, 2048, True),
    }
    m = an.Tagger("bilstm", characters="none", hidden=7, epochs=2)
    m.plan(tagged(1300, 100))
    assert (m.settings_.hidden, m.settings_.epochs, m.settings_.min_steps) == (7, 2, 0)
    m = an.Tagger("bilstm", characters="none", steps=7)
    m.plan(tagged(1300, 100))
    assert (m.settings_.steps, m.settings_.epochs, m.settings_.min_steps) == (7, 0, 0)
    for other in (an.Tagger("conv", characters="none"), an.Tagger("bilstm", characters="none")):
        other.plan("names" if other.settings_.model == "bilstm" else tagged(600))
        assert other.settings_.dropout == 0.4


def test_what_contradicts_a_given_setting_is_not_assumed(tmp_path):
    m = an.Classifier("conv", mixup=0.2, hidden=4, **TINY).fit(phrases(300), out=tmp_path / "run")
    assert (m.settings_.mixup, m.settings_.r_drop, m.settings_.tokens) == (0.2, 0.0, "word")
    assert an.load(tmp_path / "run").settings_.mixup == 0.2
    m = an.Classifier("conv", dropout=0, word_dropout=0, **TINY)
    m.plan(phrases(300))
    assert m.settings_.r_drop == 0


def test_r_drop_needs_something_that_is_dropped(tmp_path):
    m = an.Classifier("bow", r_drop=1.0, dropout=0, word_dropout=0, **TINY)
    with pytest.raises(SettingsError, match=r"r_drop = 1 compares two passes .* but nothing is dropped"):
        m.fit(phrases(300), out=tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()
    pairs = [("a b", "b a"), ("c", "c")] * 4
    small = {"hidden": 8, "heads": 2, "feedforward": 8, "vocab_size": 30, "steps": 1, "device": "cpu"}
    said = []
    with reported(said.append):
        m = an.Translator("transformer", dropout=0, input_dropout=0, **small)
        m.plan(pairs, pairs)
    assert m.settings_.r_drop == 0  # 5 is the preset's
    assert "assumed, for a model without dropout: r_drop=0" in said
    m = an.Translator("transformer", dropout=0, r_drop=2.0, **small)
    m.plan(pairs, pairs)
    assert m.settings_.r_drop == 2  # the inputs are dropped
