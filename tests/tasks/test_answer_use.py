"""Questions about pictures: learned, answered alike in any company, looked into, saved, and refused where they are bad."""

from __future__ import annotations

import functools
import json
import re

import numpy as np
import pytest
import torch
from answer_tiny import PRESETS, scenes, settings, tiny, write
from safetensors.torch import load_file
from tasks_tiny import is_one_sentence

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError, DataError, SettingsError
from anaphora.kinds.measures.classes import by_kind
from anaphora.views.registry import VIEWS, picture
from sweeps import sweep

pytest.importorskip("PIL")


@functools.cache
def trained(preset: str) -> an.Answerer:
    return tiny(preset).fit(scenes(80), valid=scenes(10, seed=1))


def asked(count: int, seed: int = 2) -> list:
    return [(x, question) for x, question, _ in scenes(count, seed=seed)]


@pytest.mark.parametrize("preset", PRESETS)
def test_answers_alone_and_in_a_batch_of_64_are_the_same(preset):
    model = trained(preset)
    mixed = asked(22)[:64]
    mixed[5] = (mixed[5][0], "what " * 30 + "is it red ?")
    together = model.predict_proba(mixed)
    for one, shares in list(zip(mixed, together, strict=True))[:: sweep(5, 1)]:
        (alone,) = model.predict_proba([one])
        np.testing.assert_allclose(alone, shares, atol=1e-5)
    np.testing.assert_allclose(together.sum(1), 1, atol=1e-9)
    order = np.random.RandomState(0).permutation(64)
    np.testing.assert_allclose(model.predict_proba([mixed[i] for i in order]), together[order], atol=1e-5)


@pytest.mark.parametrize("preset", ["lstm-attention", "transformer"])
def test_it_looks_at_the_picture(preset):
    model = tiny(preset, steps=150).fit(scenes(200), valid=scenes(10, seed=1))
    assert model.score(scenes(60, seed=3))["accuracy"] >= 95


def test_without_looking_it_can_only_guess():
    scores = trained("question-only").score(scenes(100, seed=3))
    assert 30 <= scores["accuracy"] <= 70
    assert scores["questions"] == 300
    assert scores["pictures"] == 100
    assert set(scores["by_kind"]) == {"what colour", "is it", "on which"}


def test_kinds_of_questions():
    rows = [("how many", "2", "count"), ("how far is it", "2"), ("how far", "3"), ("how many", "4", "count")]
    assert by_kind(rows, [True, True, False, True]) == {
        "count": {"accuracy": 100.0, "questions": 2},
        "how far": {"accuracy": 50.0, "questions": 2},
    }
    many = [(f"{word} is it", "yes") for word in map(str, range(30))]
    assert by_kind(many, [True] * 30)["other"]["questions"] == 10


def test_a_question_is_seen_with_its_own_picture_once():
    model = trained("lstm-attention")
    rows = asked(3)
    seen = []
    handle = model.model_.pictures.register_forward_pre_hook(lambda module, given: seen.append(len(given[0])))
    try:
        model.predict(rows)
    finally:
        handle.remove()
    assert seen == [3]  # nine questions


@pytest.mark.parametrize("preset", PRESETS)
def test_a_saved_model_answers_the_same(tmp_path, preset):
    model = trained(preset)
    model.save(tmp_path / "model")
    again = an.load(tmp_path / "model")
    assert type(again) is an.Answerer
    assert again.get_params() == model.get_params()
    assert again.answers_ == model.answers_
    assert (again.predict_proba(asked(4)) == model.predict_proba(asked(4))).all()


@pytest.mark.parametrize("preset", PRESETS)
def test_it_can_be_looked_into(preset):
    model = trained(preset)
    x, question, answer = scenes(1, seed=4)[0]
    trace = model.probe((x, question), answer, what=("gradients",))
    assert trace.max_difference <= 1e-4
    np.testing.assert_allclose(
        trace.array("probabilities"), model.predict_proba([(x, question)])[0], atol=1e-5
    )
    assert trace.facts["output"] == model.predict([(x, question)])[0]
    if preset != "question-only":
        assert (trace.array("picture", "row", "column", "channel") == x).all()
        weights = trace.array("attention", "output", "place")
        assert weights.shape == (len(trace.tokens["output"]), 16)
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
        assert trace.facts["grid"] == [4, 4]
    drawn = [view.name for view in VIEWS.values() if view.of == "probe" and view.missing(trace) is None]
    assert drawn
    assert ("captions" in drawn) == (preset != "question-only")
    for name in drawn:
        assert picture(trace, name).svg().startswith("<svg")
    assert picture(model.probe_embeddings(), "embeddings").svg().startswith("<svg")


def test_what_cannot_be_looked_into_is_told():
    model = trained("lstm-attention")
    for x in ("a picture without a question", ("a", "b", "c")):
        with pytest.raises(DataError, match="give both"):
            model.probe(x)
    with pytest.raises(DataError, match="'purple' is not an answer; there are green, left"):
        model.probe(scenes(1)[0][:2], "purple")


def test_weights_of_the_eye_come_from_another_run(tmp_path):
    trained("lstm-attention").save(tmp_path / "donor")
    path = tmp_path / "donor" / "model.safetensors"
    model = tiny("transformer", picture_weights=str(path))
    model.tokenizer_, model.answers_ = trained("lstm-attention").tokenizer_, ["no", "yes"]
    model.model_ = model._fresh_model()
    taken = model._inherited()
    network = {name for name in load_file(path) if name.startswith("pictures.network.")}
    assert set(taken) == network
    assert all(torch.equal(taken[name], value) for name, value in load_file(path).items() if name in network)
    tiny("transformer", picture_weights=str(path), steps=2).fit(scenes(8))
    with pytest.raises(DataError, match="set channels, halvings and hidden"):
        tiny(picture_weights=str(path), channels=8, steps=2).fit(scenes(8))
    with pytest.raises(SettingsError, match="no effect on the preset question-only"):
        tiny("question-only", picture_weights=str(path))


def test_augmented_pictures_are_learnt_from():
    plain, changed = (tiny(steps=3, augment=amount, mirror=amount > 0) for amount in (0.0, 0.3))
    for model in (plain, changed):
        model.fit(scenes(12), valid=scenes(2, seed=1))
    weights = [m.model_.pictures.network.stem.weight for m in (plain, changed)]
    assert not torch.equal(*weights)


def test_rare_answers_and_long_questions(recwarn):
    rows = scenes(30)
    rows += [(rows[0][0], "what " * 40 + "?", "yes"), (rows[0][0], "what is it ?", "a square")]
    model = tiny(answers=6, steps=2, max_tokens=20).fit(rows, valid=rows)
    assert "a square" not in model.answers_
    assert len(model.answers_) == 6
    assert any("1 of 92 questions are longer than max_tokens = 20" in str(w.message) for w in recwarn)
    with pytest.raises(DataError, match="None of the 90 questions fits into max_tokens = 2"):
        tiny(max_tokens=2, steps=2).fit(scenes(30), valid=scenes(2))


def test_the_plan_trains_nothing():
    planned = tiny().plan(scenes(20))
    assert planned["train"]["pictures"] + planned["valid"]["pictures"] == 20
    assert planned["vocabulary"]["answers"] == 6
    assert planned["steps"] == 60


# ---------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answer-command")
    write(folder, "train", scenes(30))
    write(folder, "test", scenes(5, seed=1))
    words = [part for key, value in settings(steps=5).items() for part in ("--set", f"{key}={value}")]
    assert main.run(["train", "answer", str(folder / "train.tsv"), "-o", str(folder / "run"), *words]) == 0
    return folder


def test_the_whole_way_through_the_command(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main.run(["score", "run", "test.tsv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["questions"] == 15
    assert main.run(["score", "run", "test.tsv"]) == 0
    assert "by_kind" in capsys.readouterr().out
    assert main.run(["predict", "run", "test.tsv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == an.load("run").predict(asked(5, seed=1))
    assert main.run(["predict", "run", "test.tsv", "--json", "--set", "top=2"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["line"] for record in records] == list(range(1, 16))
    assert [record["output"] for record in records] == lines
    assert records[3]["picture"] == "test/1.png"
    assert len(records[0]["top"]) == 2
    assert main.run(["predict", "run", "test.tsv", "--set", "top=2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 30
    assert main.run(["train", "answer", "train.tsv", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["train"]["kind"] == "held-out"


def test_one_example_is_drawn_by_its_number(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    for words in (
        ["--text", "#1"],
        ["--text", "#1 is it red ?"],
        ["--input", "test/0.png", "--text", "is it red ?"],
    ):
        assert main.run(["inspect", "run", *words, "--view", "captions", "--svg", "look.svg"]) == 0, (
            capsys.readouterr()
        )
        assert (place / "look.svg").read_text().startswith("<svg")
    capsys.readouterr()
    assert main.run(["inspect", "run", "--input", "test/0.png", "--view", "captions"]) == 2
    assert "give both" in capsys.readouterr().err


def test_bad_rows_stop_or_are_answered_with_nothing(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    (place / "broken.png").write_bytes(b"\x89PNG")
    rows = [
        "test/0.png\tis it red ?",
        "",
        "gone.png\tis it red ?",
        "broken.png\tis it ?",
        "test/1.png",
        "test/1.png\tis it red ?",
    ]
    (place / "bad.tsv").write_text("\n".join(rows) + "\n")
    assert main.run(["predict", "run", "bad.tsv"]) == 2
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2  # what came before was answered
    assert told.err.strip().endswith("bad.tsv:3: gone.png: there is no such picture; check the path.")
    assert main.run(["predict", "run", "bad.tsv", "--skip-bad"]) == 0
    told = capsys.readouterr()
    lines = told.out.split("\n")[:6]
    assert [bool(line) for line in lines] == [True, False, False, False, False, True]
    assert "3 of 6 rows could not be answered" in told.err
    assert main.run(["predict", "run", "bad.tsv", "--skip-bad", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["error" in record for record in records] == [False, False, True, True, True, False]


def test_bad_lists_in_training_and_scoring(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    rows = (place / "test.tsv").read_text() + "gone.png\tis it red ?\tyes\n"
    (place / "partly.tsv").write_text(rows)
    assert main.run(["score", "run", "partly.tsv"]) == 2
    assert (
        "partly.tsv:16: a picture that cannot be used (gone.png: there is no such picture)"
        in capsys.readouterr().err
    )
    assert main.run(["score", "run", "partly.tsv", "--skip-bad", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert (scores["questions"], scores["skipped"]) == (15, 1)
    words = [part for key, value in settings(steps=2).items() for part in ("--set", f"{key}={value}")]
    assert main.run(["train", "answer", "partly.tsv", "-o", "partly", "--skip-bad", *words]) == 0
    assert "of the data 1 row was left out (1 × a picture that cannot be used)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is empty"),
        ("what is it ?\ta square\n", "wrong number of columns"),
        ("test/0.png\tis it red ?\tyes\n", "too little to hold dev data out of"),
        ("test/0.png\ta ?\tyes\ntest/1.png\tb ?\tyes\ntest/2.png\tb ?\tyes\n", "have the answer yes"),
        ("gone.png\tis it red ?\tyes\n", "there is no such picture"),
    ],
)
def test_lists_that_teach_nothing_are_refused_in_one_sentence(place, monkeypatch, capsys, content, told):
    monkeypatch.chdir(place)
    (place / "list.tsv").write_text(content)
    assert main.run(["train", "answer", "list.tsv", "-o", "none"]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said
    assert not (place / "none").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("one question", "write \\[\\(picture, question\\)\\]"),
        ([("a.png", "q")], "there is no such picture"),
        ([(np.zeros((4, 4)), " ")], "an empty side for a question"),
        ([(np.zeros((4, 4)),)], "is not a pair"),
        ([(np.zeros((4, 4)), 3)], "is not a pair"),
        ([(np.zeros(4), "q")], "input 1 is not a picture"),
    ],
)
def test_inputs_of_another_kind_are_refused(given, told):
    with pytest.raises(DataError, match=told) as caught:
        trained("lstm-attention").predict(given)
    assert is_one_sentence(caught.value) or re.search(r"\.$", str(caught.value))


def test_nothing_asked_gives_nothing():
    assert trained("lstm-attention").predict([]) == []
    with pytest.raises(AnaphoraError, match="has not been trained"):
        tiny().predict([])
    with pytest.raises(SettingsError, match="cannot be divided among heads"):
        tiny("transformer", hidden=18, heads=4)


def test_multiple_choice_is_the_best_of_the_choices():
    """The probabilities are those without choices, renormalised over them."""
    model = trained("question-only")
    ((picture_, question),) = asked(1)[:1]
    every = model.predict_proba([(picture_, question)])[0]
    worst = np.argsort(every)[:2]
    names = [model.answers_[i] for i in worst]
    shares = model.predict_proba([(picture_, question, names)])[0]
    np.testing.assert_allclose(shares[worst], every[worst] / every[worst].sum(), rtol=1e-6)
    assert shares.sum() == pytest.approx(1)
    assert model.predict([(picture_, question, "|".join(names))]) == [names[1]]
    alone, chosen = model.predict([(picture_, question), (picture_, question, names)])
    assert alone == model.predict([(picture_, question)])[0]
    assert chosen == names[1]
    for bad, told in (("red", "at least two"), (["red", "octarine"], "no answer 'octarine'")):
        with pytest.raises(DataError, match=told) as caught:
            model.predict([(picture_, question, bad)])
        assert is_one_sentence(caught.value)


def test_choices_stand_in_the_third_column(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = trained("question-only")
    model.save("run")
    rows = write(tmp_path, "rows", scenes(1))
    name, question = rows.read_text().splitlines()[0].split("\t")[:2]
    first, second = model.answers_[:2]
    (rows.parent / "choose.tsv").write_text(f"{name}\t{question}\t{first}|{second}\n")
    order = ["predict", "run", str(rows.parent / "choose.tsv"), "--set", "choices=true", "--set", "top=5"]
    assert main.run(order) == 0
    assert {line.split("\t")[2] for line in capsys.readouterr().out.splitlines()} == {first, second}
    (rows.parent / "choose.tsv").write_text(f"{name}\t{question}\n")
    assert main.run(order) == 2
    assert "needs its choices" in capsys.readouterr().err
