"""``--skip-bad``: what cannot be read is left out with a count, by the commands whose task can do so."""

from __future__ import annotations

import pytest

from anaphora.cli import main
from anaphora.tasks.skipped import skipped_of, warn_of_skipped

TINY = ["--steps", "2", "--hidden", "4", "--set", "embedding=4", "--set", "tokens=word", "--device", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("skip-bad")
    (place / "t.tsv").write_text("a b\tx\nno label\nc d\ty\na d\tx\nc b\ty\n")
    return place


def test_training_goes_on_and_tells_the_count(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main.run(["train", "classify", "t.tsv", "-o", "strict", *TINY]) == 2
    assert "t.tsv:2: wrong number of columns" in capsys.readouterr().err
    assert main.run(["train", "classify", "t.tsv", "-o", "run", "--skip-bad", *TINY]) == 0
    assert "of the data 1 row was left out (1 × wrong number of columns)." in capsys.readouterr().err
    assert main.run(["score", "run", "t.tsv", "--bad-rows", "strict"]) == 2
    assert main.run(["score", "run", "t.tsv", "--skip-bad"]) == 0
    capsys.readouterr()
    assert main.run(["score", "run", "t.tsv", "--skip-bad", "--bad-rows", "strict"]) == 2
    assert "contradict each other" in capsys.readouterr().err
    assert main.run(["predict", "run", "t.tsv", "--skip-bad"]) == 2
    assert "--skip-bad has no meaning for a Classifier" in capsys.readouterr().err


def test_a_task_without_rows_that_can_be_spared_refuses_it(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main.run(["train", "forecast", "t.tsv", "--skip-bad"]) == 2
    assert "--skip-bad: bad_rows is not a setting of Forecaster" in capsys.readouterr().err


def test_two_rows_and_two_reasons_are_counted():
    assert skipped_of({"skipped": {"an empty side": 2, "broken UTF-8": 1}}) == (
        "3 rows were left out (2 × an empty side, 1 × broken UTF-8)"
    )
    assert skipped_of({"skipped": {}}) == skipped_of({}) == ""
    with pytest.warns(UserWarning, match="of the dev data 1 row was left out"):
        warn_of_skipped({"train": {"kind": "tsv"}, "valid": {"kind": "tsv", "skipped": {"an empty side": 1}}})
