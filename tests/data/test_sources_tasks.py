"""Every task takes what a `Source` opens: held out, as vectors, as words with tags, as running text, as series."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.cli.answering import respond
from anaphora.data.series_readers import SERIES_READER, open_series
from anaphora.data.sources.conll import open_sentences
from anaphora.data.sources.labelled import open_labelled
from anaphora.data.sources.sheet import XY
from anaphora.data.sources.tagged import TAGGED_READER
from anaphora.data.split import Split, held_count
from anaphora.data.text import TEXT_READER, open_text
from anaphora.errors import DataError
from anaphora.tasks.registry import TASKS


@pytest.mark.parametrize(("holdout", "held"), [(0, 5), (0.2, 20), (0.001, 1), (7, 7), (1, 1), (99, 99)])
def test_a_share_or_a_count_is_held_out(holdout: float, held: int) -> None:
    assert held_count(holdout, 100) == held


@pytest.mark.parametrize("holdout", [100, 0.999])
def test_something_must_be_left(holdout: float) -> None:
    with pytest.raises(DataError, match="cannot be held out as dev data"):
        held_count(holdout, 100)


@pytest.mark.parametrize("kind", ["numpy", "torch", "list", "loader", "frame"])
def test_vectors_come_with_their_labels_from_every_kind_of_array(kind: str) -> None:
    X = np.random.RandomState(1).randn(6, 4, 2).astype(np.float32)
    y = [0, 1, 0, 1, 1, 0]
    given: Any = {
        "numpy": (X, np.array(y)),
        "torch": (torch.from_numpy(X), torch.tensor(y)),
        "list": XY(list(X), y),
        "loader": torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.from_numpy(X), torch.tensor(y)), batch_size=4
        ),
        "frame": [{"sequence": x, "label": label} for x, label in zip(X, y, strict=True)],
    }[kind]
    found = open_labelled(given)
    assert found.holds_vectors
    assert found.column(1) == [str(label) for label in y]
    assert np.array_equal(np.stack(found.column(0)), X)


def test_every_task_holds_out_what_is_asked_for(tmp_path: Path) -> None:
    assert all("holdout" in task.used(name) for task in TASKS.values() for name in task.presets)
    (tmp_path / "a.txt").write_text("".join(f"line {i:02}\n" for i in range(50)))
    for by_line in (True, False):
        for holdout, held in ((0, 5), (0.2, 10), (7, 7)):
            rule = Split("stream lines" if by_line else "stream end", holdout, 1)
            train, dev = TEXT_READER.training(tmp_path / "a.txt", None, rule)
            assert (len(train), len(dev)) == (50 - held, held)
            again = TEXT_READER.reopen({"train": train.describe(), "valid": dev.describe()})
            assert [list(one.blocks()) for one in again] == [list(train.blocks()), list(dev.blocks())]
    series = {"x": np.arange(100.0)}
    for holdout, held in ((0, 10), (0.25, 25), (40, 40)):
        _, held_out = SERIES_READER.training(series, None, Split("end", holdout), spill=tmp_path)
        assert len(held_out) == held
        reopened = SERIES_READER.reopen_one(held_out.describe(), tmp_path)
        assert reopened.describe() == held_out.describe()
    sentences = [(["a", "b"], ["X", "Y"])] * 40
    _, tagged = TAGGED_READER.training(sentences, None, Split("rows", 0.5, 1))
    assert len(tagged) == 20


def test_a_frame_of_words_and_tags_is_tagged(tmp_path: Path) -> None:
    rows = [{"tokens": ["a", "b c"], "ner_tags": [0, 1]}, {"tokens": ["d"], "ner_tags": [0]}]
    found = open_sentences(rows, spill=tmp_path)  # type: ignore[arg-type]
    assert list(found) == [("a\tb c", "0\t1"), ("d", "0")]
    assert list(open_sentences(columns_of_words(), spill=None)) == list(found)  # type: ignore[arg-type]


def columns_of_words() -> Any:
    return {"tokens": [["a", "b c"], ["d"]], "ner_tags": [[0, 1], [0]]}


def test_running_text_comes_from_a_column(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "text": "one\\ntwo"}\n{"id": 2, "text": "three"}\n')
    text = open_text(path)
    assert "".join(text.blocks()) == "one\ntwo\nthree\n"
    assert "".join(open_text([{"text": "one\ntwo"}, {"text": "three"}]).blocks()) == "one\ntwo\nthree\n"  # type: ignore[list-item]
    (tmp_path / "b.csv").write_text("n,body\n1,a b\n2,c\n")
    assert "".join(open_text(tmp_path / "b.csv").blocks()) == "n,body\n1,a b\n2,c\n"
    assert "".join(open_text(tmp_path / "b.csv", source_field="body").blocks()) == "a b\nc\n"
    train, dev = TEXT_READER.training(path, None, Split("stream lines", 1, 1))
    again = TEXT_READER.reopen({"train": train.describe(), "valid": dev.describe()})
    assert list(again[0].blocks()) == list(train.blocks())


def test_series_come_from_every_table_and_texts_beside_them_are_left_out(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "when": pandas.date_range("2026-01-01", periods=6, freq="h"),
            "load": [1.0, 2.0, None, 4.0, 5.0, 6.0],
            "note": ["a", "b", "c", "d", "e", "f"],
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_json(tmp_path / "b.jsonl", orient="records", lines=True, date_format="iso")
    given: list[Any] = [frame, tmp_path / "a.csv", tmp_path / "b.jsonl"]
    for data in given:
        with pytest.warns(UserWarning, match="left out note: texts, not numbers"):
            found = open_series(data, time_field="when")
        assert found.columns == ("load",)
        assert len(found.series[0].times) == 6
        np.testing.assert_array_equal(found.series[0].values[:, 0], [1, 2, np.nan, 4, 5, 6])


def test_a_language_model_and_a_tagger_answer_the_tables_they_were_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"n": i, "body": f"line {i}\nmore"}) + "\n" for i in range(20)))
    an.LanguageModel("ngram").fit(path, out=tmp_path / "lm", source_field="body")
    answers = [one.record["input"] for one in respond(an.load(tmp_path / "lm"), str(path), {})]
    assert answers[:4] == ["line 0", "more", "line 1", "more"]
    tagged = tmp_path / "tags.jsonl"
    rows = [
        {"tokens": ["a", "b c"] if i % 2 else ["b c"], "tags": ["X", "Y"] if i % 2 else ["Y"]}
        for i in range(12)
    ]
    tagged.write_text("".join(json.dumps(row) + "\n" for row in rows))
    an.Tagger("hmm", holdout=0.25).fit(tagged, out=tmp_path / "tagger")
    found = [json.loads(one.text) for one in respond(an.load(tmp_path / "tagger"), str(tagged), {})]
    assert [row["prediction"] for row in found] == [" ".join(row["tags"]) for row in rows]
