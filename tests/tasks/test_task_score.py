"""Scoring compares with the references as the model knows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anaphora as an
from anaphora.cli import main
from anaphora.data.labelled_targets import Targets
from anaphora.data.table import HeldTable
from anaphora.data.tokenizers import PairTokenizer
from anaphora.kinds.measures.captions import caption_measures
from anaphora.kinds.measures.classes import class_measures
from anaphora.kinds.measures.judged import SHARES, unit_of
from anaphora.kinds.measures.tags import tag_measures
from anaphora.kinds.measures.texts import translation_measures
from anaphora.kinds.measures.transcripts import transcription_report

PAIRS = [("one", "Eins  zwei"), ("two", " Drei ")]


def answering(answers: list[str], *, lowercase: bool) -> an.Translator:
    """A translator that knows its answers already."""
    m = an.Translator(lowercase=lowercase)
    m.tokenizer_ = PairTokenizer.train(HeldTable(PAIRS, {}), kind="word", vocab_size=20, lowercase=lowercase)
    m.predict = lambda texts, **_: answers[: len(texts)]  # type: ignore[method-assign]
    return m


def test_spaces_that_no_output_can_have_do_not_count() -> None:
    assert answering(["Eins zwei", "Drei"], lowercase=False).score(PAIRS)["exact_match"] == 100
    assert answering(["eins zwei", "Drei"], lowercase=False).score(PAIRS)["exact_match"] == 50


def test_a_model_in_lower_case_is_compared_in_lower_case() -> None:
    assert answering(["eins zwei", "drei"], lowercase=True).score(PAIRS)["exact_match"] == 100


def test_broken_rows_can_be_left_out_of_a_score(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("one\tEins zwei\nbroken\n", encoding="utf-8")
    m = answering(["Eins zwei"], lowercase=False)
    with pytest.raises(an.AnaphoraError, match=r"test\.tsv:2"):
        m.score(path)
    assert m.score(path, bad_rows="skip")["examples"] == 1


def test_A11_score_has_one_form_in_python_the_command_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of three are right: 66.67 % wherever it is read, under one name; score(X, y) alone is scikit-learn's share."""
    texts, labels = ["good film", "bad film"] * 8, ["pos", "neg"] * 8
    m = an.Classifier("ngrams").fit(texts, labels, out=tmp_path / "run")
    rows = [("good film", "pos"), ("bad film", "neg"), ("bad film", "pos")]
    (tmp_path / "test.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    python = m.score(rows)
    assert python["accuracy"] == pytest.approx(200 / 3)
    assert m.score([text for text, _ in rows], [label for _, label in rows]) == pytest.approx(2 / 3)
    order = ["score", str(tmp_path / "run"), str(tmp_path / "test.tsv")]
    assert main.run([*order, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: found[name] for name in python} == python
    assert main.run(order) == 0
    out = capsys.readouterr().out
    shown = dict(line.strip().split(maxsplit=1) for line in out.splitlines() if len(line.split()) > 1)
    assert shown["accuracy"] == "66.67 %"
    assert shown["macro_f1"].split() == [f"{python['macro_f1']:.2f}", "%"]
    assert shown["examples"] == "3"
    assert "recall 50.00 %" in out


@pytest.mark.parametrize(
    ("labels", "kind"), [([1, 0], "class"), ([True, False], "class"), (["1|2", "2"], "classes")]
)
def test_A11_labels_agree_in_python_and_json(
    labels: list[Any], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of whole numbers answered 1 in Python and by HTTP, "1" by the command."""
    texts = ["good film", "bad film"]
    m = an.Classifier("ngrams", target=kind).fit(texts * 8, labels * 8, out=tmp_path / "run")
    (tmp_path / "in.txt").write_text("\n".join(texts))
    assert main.run(["predict", str(tmp_path / "run"), str(tmp_path / "in.txt"), "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for record, python in zip(records, m.predict(texts, details=True), strict=True):
        assert (record["output"], type(record["output"])) == (python.label, type(python.label))
        best = max(python.probabilities, key=lambda name: python.probabilities[name])
        assert (record["top"][0]["label"], type(record["top"][0]["label"])) == (best, type(best))


def test_A11_every_measure_of_right_answers_is_100_percent_or_has_another_unit() -> None:
    """The measures of all tasks whose answers are right: what is a share is 100, of errors 0."""
    several = Targets("classes", ("a", "b"))
    table = np.array([[1, 0], [1, 1]], np.float32)
    found = {
        "class": class_measures(Targets("class", ("a", "b")), ["a", "b"], np.array([0, 1])).report,
        "classes": class_measures(several, ["a", "a|b"], table).report,
        "number": class_measures(Targets("number"), ["1", "2"], np.array([1.0, 2.0]), 0.1).report,
        "spans": tag_measures([["B-x", "O"]], [["B-x", "O"]], spans=True).report,
        "captions": caption_measures(["a red square"], [["a red square"]], tokenize="13a").report,
        "translations": translation_measures(["ein roter Platz hier"], ["ein roter Platz hier"]).report,
        "transcripts": transcription_report(["0"], ["a b"], ["a b"]),
    }
    other = {"mse": 0, "mae": 0, "r2": 1, "bleu": 100, "chrf": 100, "cider": None}
    for task, scores in found.items():
        for name, value in scores.items():
            if not isinstance(value, float):
                continue
            if unit_of(name):
                assert value == pytest.approx(0 if name in ("wer", "cer") else 100), (task, name)
            else:
                assert name in other, f"{task}: is {name} a share? Then it belongs to SHARES"
                assert other[name] is None or value == pytest.approx(other[name], abs=1e-6), (task, name)
    assert {unit_of(share.replace("*", "5")) for share in SHARES} == {"%"}


def test_border_3_17_a_text_with_nothing_in_it_gets_no_answer_in_python_either() -> None:
    m = an.Classifier("ngrams").fit(["good film", "bad film"] * 6, ["pos", "neg"] * 6)
    assert m.predict(["good film", "", " \t"]) == ["pos", None, None]
    assert [one and one.label for one in m.predict(["", "bad film"], details=True)] == [None, "neg"]
    assert m.predict([]) == []
    numbers = an.Classifier("ngrams", target="number").fit(["one", "two"] * 8, [1.0, 2.0] * 8)
    assert numbers.predict([""]) == [None]
