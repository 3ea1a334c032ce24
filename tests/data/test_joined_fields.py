"""Several columns read as one text: what is there is joined, and a row is empty only where all of them are."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from anaphora.cli.main import run
from anaphora.data.sources.opening import ROW_READER, open_source
from anaphora.data.sources.roles import LABELLED

ROWS = [
    ("broken", "the box is torn", "delivery"),
    ("", "no letters came", "delivery"),
    ("please", "", "billing"),
    (" ", "paid twice", "billing"),
]
TEXTS = ["broken the box is torn", "no letters came", "please", "paid twice"]
FIELDS = {"source_field": "subject+body", "target_field": "category"}
NAMES = ("subject", "body", "category")


def _write(folder, form, rows):
    path = folder / f"tickets.{form}"
    if form == "jsonl":
        lines = [json.dumps(dict(zip(NAMES, row, strict=True))) for row in rows]
    else:
        lines = [{"csv": ",", "tsv": "\t"}[form].join(row) for row in (NAMES, *rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_what_is_there_is_joined(tmp_path, form):
    source = open_source(_write(tmp_path, form, ROWS), roles=LABELLED, **FIELDS)
    assert [row[0] for row in source] == TEXTS


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_a_row_without_any_of_them_is_empty(tmp_path, form):
    path = _write(tmp_path, form, [*ROWS, ("", " ", "billing")])
    source = open_source(path, roles=LABELLED, bad_rows="skip", **FIELDS)
    assert [row[0] for row in source] == TEXTS
    assert source.describe()["skipped"] == {"an empty side": 1}


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_frames_join_what_is_there(missing):
    frame = pd.DataFrame({name: [row[i] for row in ROWS] for i, name in enumerate(NAMES)}, dtype=object)
    frame.loc[1, "subject"] = missing
    assert [row[0] for row in open_source(frame, roles=LABELLED, **FIELDS)] == TEXTS


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_data_of_a_run_of_0_2_keep_the_rows_they_had(tmp_path, form):
    """Its description says nothing of joins, and its dev rows were held out of the rows with a value in both columns."""
    path = _write(tmp_path, form, ROWS)
    description = open_source(path, roles=LABELLED, bad_rows="skip", **FIELDS).describe()
    assert len(ROW_READER.reopen_one(description, roles=LABELLED)) == 4
    del description["joins_filled"]
    assert [row[0] for row in ROW_READER.reopen_one(description, roles=LABELLED)] == TEXTS[:1]


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_predict_answers_what_has_a_part_and_counts_what_has_none(tmp_path, capsys, form):
    rows = [(f"{a}", f"{b} {i}", a) for i in range(12) for a, b in (("red", "apple"), ("blue", "berry"))]
    train = _write(tmp_path, form, rows)
    out = tmp_path / "run"
    words = ["--source-field", "subject+body", "--label", "category", "--model", "ngrams", "-o", str(out)]
    assert run(["train", "classify", str(train), *words]) == 0
    asked = _write(tmp_path, form, [("", "apple", "red"), ("blue", "", "blue"), ("", "", "red")])
    answers = tmp_path / "answers"
    capsys.readouterr()
    assert run(["predict", str(out), str(asked), "-o", str(answers)]) == 0
    said = capsys.readouterr().err
    last = [line.split("," if form == "csv" else "\t")[-1] for line in answers.read_text().splitlines()]
    assert last[-3:-1] == ["red", "blue"]
    assert last[-1] == ""
    assert "Wrote the answers to 2 of 3 inputs" in said
