"""Dialogues about a picture, and multiple choice in score."""

from __future__ import annotations

import numpy as np
import pytest
from answer_tiny import SIDE, settings

import anaphora as an
from anaphora.cli.answering import respond
from anaphora.data.corpora import CORPORA
from anaphora.data.corpora.shapes import dialogue
from anaphora.data.pictures import png_bytes
from anaphora.errors import DataError
from anaphora.tasks.answer.inference import spoken

FOLLOWING = [
    ("is there a cat ?", "yes"),
    ("what does it eat ?", "fish"),
    ("is there a cow ?", "yes"),
    ("what does it eat ?", "grass"),
]


def pictures(count):
    draw = np.random.RandomState(0)
    return [draw.randint(0, 255, (SIDE, SIDE, 3)).astype(np.uint8) for _ in range(count)]


def rows(count=12):
    """Half of the dialogues are about a cat, half about a cow; what it eats only the question before tells."""
    return [(x, *turn) for n, x in enumerate(pictures(count)) for turn in FOLLOWING[2 * (n % 2) :][:2]]


@pytest.fixture(scope="module")
def talking(tmp_path_factory):
    run = tmp_path_factory.mktemp("talk") / "run"
    return an.Answerer(**settings("question-only", history=2)).fit(rows(), valid=rows(), out=run), run


def test_what_is_read_is_the_question_after_the_last_turns():
    turns = [("a ?", "b"), ("c ?", "d")]
    assert spoken(turns, "e ?", 0) == "e ?"
    assert spoken(turns, "e ?", 1) == "c ? d e ?"
    assert spoken(turns, "e ?", 9) == "a ? b c ? d e ?"


def test_a_question_is_answered_by_what_was_asked_before(talking):
    model, run = talking
    assert model.score(rows())["accuracy"] == 100
    (x,) = pictures(1)
    asked = [(x, [FOLLOWING[0], "what does it eat ?"]), (x, [FOLLOWING[2], "what does it eat ?"])]
    assert model.predict(asked) == ["fish", "grass"]
    assert an.load(run, device="cpu").predict(asked) == ["fish", "grass"]
    blind = an.Answerer(**settings("question-only")).fit(rows(), valid=rows())
    assert blind.score(rows())["accuracy"] <= 75


def test_a_list_is_read_as_dialogues_with_the_models_own_answers(talking, tmp_path):
    model, _ = talking
    for n, x in enumerate(pictures(2)):
        (tmp_path / f"{n}.png").write_bytes(png_bytes(x))
    lines = [
        "0.png\tis there a cat ?",
        "1.png\tis there a cow ?",
        "0.png\twhat does it eat ?",
        "1.png\twhat does it eat ?",
    ]
    (tmp_path / "list.tsv").write_text("\n".join(lines) + "\n")
    assert [r.text for r in respond(model, str(tmp_path / "list.tsv"), {})] == ["yes", "yes", "fish", "grass"]


def test_of_a_long_dialogue_the_end_is_read():
    model = an.Answerer(**settings("question-only", history=9, max_tokens=4, steps=2)).fit(
        rows(), valid=rows()
    )
    (ids,) = model._encode(["a b is there a cat ?"])
    assert model.tokenizer_.decode(ids.tolist()) == "there a cat ?"
    assert all(len(ids) <= 4 for about in model._questions(model._open_test(rows(), None)) for ids in about)


def test_a_dialogue_needs_history(talking):
    single = an.Answerer(**settings("question-only", steps=2)).fit(rows(), valid=rows())
    (x,) = pictures(1)
    with pytest.raises(
        DataError, match="input 1 is a dialogue, but the model was trained on single questions"
    ):
        single.predict([(x, [FOLLOWING[0], "what does it eat ?"])])
    with pytest.raises(DataError, match=r"a dialogue is a list of \(question, answer\) pairs"):
        talking[0].predict([(x, ["is there a cat ?", "yes", "what does it eat ?"])])


def test_multiple_choice_is_scored(talking):
    model, _ = talking
    given = [(x, question, answer, "fish|grass|yes") for x, question, answer in rows()]
    found = model.score(given, choices=True)
    assert found["accuracy"] == 100
    assert found["guess"] == pytest.approx(100 / 3)
    wrong = [(x, "what does it eat ?", "fish", "grass|yes") for x in pictures(3)]
    assert model.score(wrong, choices=True)["accuracy"] == 0  # the right answer was not among the choices
    with pytest.raises(DataError, match=r"question 1 .* has no choices"):
        model.score(rows(), choices=True)
    with pytest.raises(DataError, match="no answer 'hay'"):
        model.score([(x, "what does it eat ?", "fish", "hay|fish") for x in pictures(2)], choices=True)


def test_the_dialogues_of_the_corpus_call_a_thing_it(tmp_path):
    corpus = CORPORA["shapes"]
    corpus.write(tmp_path / "scenes", "few", "train", 6)
    lines = (tmp_path / "scenes" / "dialogues.tsv").read_text().splitlines()
    assert lines[0].split("\t")[1].startswith("is there a ")
    assert lines[1].split("\t")[1] == "what colour is it ?"
    scene = corpus.generate("few", "train", 1)[0]
    turns = dialogue(scene.objects)
    alone = next(one for one in scene.objects if f"is there a {one.shape} ?" == turns[0][0])
    assert [answer for _, answer in turns] == ["yes", alone.colour, alone.size]
