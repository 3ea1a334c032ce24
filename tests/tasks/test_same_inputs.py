"""What ``train`` reads as inputs, ``predict`` and ``score`` read as the same inputs: files, tables, and lines."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anaphora as an
from anaphora.cli import main
from anaphora.data.asked import asked_batches
from anaphora.data.sources.opening import open_source
from anaphora.errors import DataError

ROWS = [
    ("a good, fine film", "good"),
    ("a bad\nfilm", "bad"),
    ('it was "great"', "good"),
    ("awful", "bad"),
] * 6


class Frame:
    """A data frame as pandas makes it, as far as we look: ``columns``, ``shape`` and columns by name."""

    def __init__(self, columns: dict[str, list[object]]):
        self._columns, self.columns = columns, list(columns)
        self.shape = (len(next(iter(columns.values()))), len(columns))

    def __getitem__(self, name: str) -> list[object]:
        return self._columns[name]

    def __iter__(self):  # a data frame iterates over its column names: the trap of taking it for a list
        return iter(self.columns)


def small(**settings: object) -> an.Classifier:
    return an.Classifier(
        "bow", embedding=8, steps=8, batch_tokens=64, tokens="word", device="cpu", **settings
    )


def write_csv(
    path: Path, header: list[str] | None, rows: list[tuple[str, ...]], delimiter: str = ","
) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerows(([header] if header else []) + rows)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run trained on a CSV whose input is neither the first column nor called anything usual, and that CSV."""
    folder = tmp_path_factory.mktemp("same")
    rows = [(str(i), label, text) for i, (text, label) in enumerate(ROWS)]
    data = write_csv(folder / "mail.csv", ["id", "kind", "body"], rows)
    small().fit(data, valid=data, out=folder / "run", source_field="body", target_field="kind")
    return folder / "run", data


def test_predict_reads_the_column_that_was_trained_on(run, capsys):
    path, data = run
    assert main.run(["predict", str(path), str(data)]) == 0
    answered = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert answered[0] == ["id", "kind", "body", "prediction"]
    model = an.load(path)
    texts = [text for text, _ in ROWS]
    assert [row[2] for row in answered[1:]] == texts
    assert [row[3] for row in answered[1:]] == model.predict(texts)
    right = sum(row[1] == row[3] for row in answered[1:])
    assert 100 * right / len(ROWS) == pytest.approx(model.score(data)["accuracy"])


def test_json_lines_get_a_field(run, tmp_path, capsys):
    path, _ = run
    lines = tmp_path / "mail.jsonl"
    lines.write_text("\n".join(json.dumps({"body": text, "n": i}) for i, (text, _) in enumerate(ROWS)))
    assert main.run(["predict", str(path), str(lines)]) == 0
    answered = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["n"] for row in answered] == list(range(len(ROWS)))
    assert [row["prediction"] for row in answered] == an.load(path).predict([text for text, _ in ROWS])


def test_another_column_can_be_named_and_an_unknown_one_is_refused(run, tmp_path, capsys):
    path, _ = run
    other = write_csv(tmp_path / "other.csv", ["note", "n"], [("awful", "1"), ("a good film", "2")])
    assert main.run(["predict", str(path), str(other)]) == 2
    assert "was trained on body; name the one to read" in capsys.readouterr().err
    assert main.run(["predict", str(path), str(other), "--source-field", "nte"]) == 2
    assert "has no field nte; did you mean note?" in capsys.readouterr().err
    assert main.run(["predict", str(path), str(other), "--source-field", "note"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_table_from_python_is_read_by_its_column(run):
    model = an.load(run[0])
    texts, labels = zip(*ROWS, strict=True)
    frame = Frame({"kind": list(labels), "body": list(texts)})
    assert model.predict(frame) == model.predict(texts)
    assert model.predict([{"body": text, "kind": label} for text, label in ROWS]) == model.predict(texts)
    with pytest.raises(DataError, match=r"has the columns kind, note, and the model was trained on body"):
        model.predict(Frame({"kind": list(labels), "note": list(texts)}))


def test_fit_takes_a_table_and_remembers_its_columns(tmp_path):
    texts, labels = zip(*ROWS, strict=True)
    frame = Frame(
        {"n": list(range(len(ROWS))), "text": list(texts), "label": [int(x == "good") for x in labels]}
    )
    model = small().fit(frame, out=tmp_path / "run")
    assert model.classes_ == [0, 1]
    found = an.load(tmp_path / "run").predict(Frame({"text": list(texts), "more": list(texts)}))
    assert found == model.predict(texts)


def test_a_missing_value_names_its_row():
    with pytest.raises(DataError, match=r"table:2: a missing value \(label\)"):
        small().fit(Frame({"text": ["a", "b"], "label": ["x", float("nan")]}))
    texts, labels = zip(*ROWS, strict=True)
    gaps = [None if number == 3 else int(label == "good") for number, label in enumerate(labels)]
    with pytest.warns(UserWarning, match="1 "):
        skipping = small(bad_rows="skip").fit(Frame({"text": list(texts), "label": gaps}))
    assert skipping.classes_ == [0, 1]


@pytest.mark.parametrize(
    "rows",
    [
        [
            ("3", "Wall St. Bears Claw Back", "Short-sellers are seeing green again."),
            ("1", "No peace", "Talks ended."),
        ],
        [
            ("spam", "win a prize now"),
            ("ham", "see you at six"),
            ("spam", "call now"),
            ("ham", "ok"),
            ("spam", "free"),
        ],
    ],
)
def test_a_file_without_a_header_is_asked_about(rows, tmp_path):
    path = write_csv(tmp_path / "news.csv", None, rows * 20)
    with pytest.raises(DataError, match=r"news.csv:1: the first row looks like data, not like a header"):
        open_source(path)
    pairs = open_source(path, source_field="2", target_field="1")
    assert len(pairs) == len(rows) * 20
    assert pairs[0] == (rows[0][1], rows[0][0])


def test_numbers_for_a_file_with_a_header_are_refused(tmp_path):
    path = write_csv(tmp_path / "a.csv", ["text", "label"], [("a b", "x"), ("c d", "y")])
    with pytest.raises(DataError, match=r"the first row is a header \(text, label\); name the columns by it"):
        open_source(path, source_field="1", target_field="2")


def test_nearly_as_many_classes_as_rows_is_an_error():
    with pytest.raises(DataError, match=r"examples have 3\d different labels"):
        small().fit([(f"text {i}", f"label {min(i, 37)}") for i in range(40)])


def test_lines_with_tabs_are_rows_whose_first_column_is_read(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("one two\tx\nthree\ty\n")
    with pytest.warns(UserWarning, match="its lines have 2 columns; the model reads the first"):
        (batch,) = asked_batches(str(path), {"kind": "tsv"})
    assert [one.text for one in batch] == ["one two", "three"]
    assert [one.with_answer("z") for one in batch] == ["one two\tx\tz", "three\ty\tz"]


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1).filter(str.strip)


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8),
    form=st.sampled_from(["csv", "jsonl", "tsv"]),
)
@pytest.mark.filterwarnings("ignore:.*its lines have 2 columns")
def test_what_training_accepts_prediction_reads_as_the_same_inputs(tmp_path_factory, rows, form):
    path = tmp_path_factory.mktemp("rows") / f"train.{form}"
    if form == "csv":
        write_csv(path, ["source", "target"], rows)
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in rows))
    else:
        path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8", newline="")
    pairs = open_source(path)
    asked = [one.text for batch in asked_batches(str(path), pairs.describe()) for one in batch]
    assert asked == [source for source, _ in pairs]


def test_inspecting_a_classifier_without_a_view_shows_what_it_has(run, capsys):
    assert main.run(["inspect", str(run[0]), "--text", "a good film"]) in (0, 2)
    assert "alignment" not in capsys.readouterr().err.split("Showing")[0]
