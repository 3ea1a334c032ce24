"""One `Source` under all data: every opener gives the same rows, says what it read, and is opened again."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anaphora as an
from anaphora.cli.answering import respond
from anaphora.data.asked import asked_batches
from anaphora.data.conll_sentences import open_sentences
from anaphora.data.labelled import open_labelled, open_training
from anaphora.data.series_readers import open_series, open_training_series, reopen_series
from anaphora.data.sources import formats
from anaphora.data.sources.holdout import held_count, hold_out, reopen_training
from anaphora.data.sources.holdout import open_training as open_rows
from anaphora.data.sources.objects import XY
from anaphora.data.sources.opening import open_source, reopen_source
from anaphora.data.sources.report import reported
from anaphora.data.sources.roles import LABELLED
from anaphora.data.tagged import open_training as open_training_sentences
from anaphora.data.text_readers import open_text, open_training_text, reopen_texts
from anaphora.data.vectors import VectorRows
from anaphora.errors import DataError
from anaphora.tasks.given import given_inputs
from anaphora.tasks.registry import TASKS

Rows = list[tuple[str, str]]
ROWS: Rows = [
    ('a good, "fine" film', "good"),
    ("a bad\nfilm", "bad"),
    ("größe; x|y", "good"),
    ("awful", "bad"),
] * 3


def columns(rows: Rows) -> dict[str, list[str]]:
    return {"text": [text for text, _ in rows], "label": [label for _, label in rows]}


def as_csv(rows: Rows, delimiter: str = ",", end: str = "\n") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end).writerows([("text", "label"), *rows])
    return text.getvalue()


def as_lines(rows: Rows) -> str:
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)


def written(name: str, content: Callable[[Rows], bytes]) -> Callable[[Rows, Path], Any]:
    def write(rows: Rows, folder: Path) -> Any:
        (folder / name).write_bytes(content(rows))
        return folder / name

    return write


def zipped(rows: Rows) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", as_csv(rows))
        archive.writestr("__MACOSX/._a.csv", b"\0")
    return packed.getvalue()


def zst(rows: Rows) -> bytes:
    return bytes(pytest.importorskip("zstandard").compress(as_csv(rows).encode()))


def parquet(rows: Rows) -> bytes:
    pa = pytest.importorskip("pyarrow")
    held = io.BytesIO()
    pytest.importorskip("pyarrow.parquet").write_table(pa.table(columns(rows)), held, row_group_size=2)
    return held.getvalue()


def feather(rows: Rows) -> bytes:
    pa = pytest.importorskip("pyarrow")
    held = io.BytesIO()
    pytest.importorskip("pyarrow.feather").write_feather(pa.table(columns(rows)), held)
    return held.getvalue()


FILES: dict[str, Callable[[Rows, Path], Any]] = {
    "comma": written("a.csv", lambda rows: as_csv(rows).encode()),
    "semicolon": written("b.csv", lambda rows: as_csv(rows, ";").encode()),
    "delimiter in the first line": written("n.csv", lambda rows: b"sep=;\r\n" + as_csv(rows, ";").encode()),
    "tab": written("c.csv", lambda rows: as_csv(rows, "\t").encode()),
    "BOM and CRLF": written("d.csv", lambda rows: as_csv(rows, end="\r\n").encode("utf-8-sig")),
    "UTF-16": written("e.csv", lambda rows: as_csv(rows).encode("utf-16")),
    "gz": written("f.csv.gz", lambda rows: gzip.compress(as_csv(rows).encode())),
    "bz2": written("f.csv.bz2", lambda rows: bz2.compress(as_csv(rows).encode())),
    "xz": written("f.csv.xz", lambda rows: lzma.compress(as_csv(rows).encode())),
    "zst": written("g.csv.zst", zst),
    "zip": written("h.csv.zip", zipped),
    "JSON lines": written("i.jsonl", lambda rows: as_lines(rows).encode()),
    "JSON": written("j.json", lambda rows: json.dumps([{"text": a, "label": b} for a, b in rows]).encode()),
    "Parquet": written("k.parquet", parquet),
    "Parquet by content": written("l.data", parquet),
    "Feather": written("m.feather", feather),
}
OBJECTS: dict[str, Callable[[Rows, Path], Any]] = {
    "pandas": lambda rows, _: pytest.importorskip("pandas").DataFrame(columns(rows)),
    "polars": lambda rows, _: pytest.importorskip("polars").DataFrame(columns(rows)),
    "polars, lazy": lambda rows, _: pytest.importorskip("polars").LazyFrame(columns(rows)),
    "Arrow": lambda rows, _: pytest.importorskip("pyarrow").table(columns(rows)),
    "Hugging Face": lambda rows, _: pytest.importorskip("datasets").Dataset.from_dict(columns(rows)),
    "dictionaries": lambda rows, _: [{"n": 1, "text": a, "label": b} for a, b in rows],
    "generator of dictionaries": lambda rows, _: ({"text": a, "label": b} for a, b in rows),
    "mapping": lambda rows, _: columns(rows),
}
PLAIN: dict[str, Callable[[Rows, Path], Any]] = {
    "pairs": lambda rows, _: rows,
    "generator": lambda rows, _: iter(rows),
    "(X, y)": lambda rows, _: XY([a for a, _ in rows], np.array([b for _, b in rows])),
    "DataLoader": lambda rows, _: torch.utils.data.DataLoader(rows, batch_size=3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", [*FILES, *OBJECTS, *PLAIN])
def test_every_opener_gives_the_same_rows_and_opens_them_again(name: str, tmp_path: Path) -> None:
    make = {**FILES, **OBJECTS, **PLAIN}[name]
    found = open_labelled(make(ROWS, tmp_path), spill=tmp_path / "run" / "data")
    assert not isinstance(found, VectorRows)
    assert list(found) == ROWS
    assert [row.values for row in found.rows(9)] == ROWS[9:]
    assert [column.role for column in found.columns] == ["source", "target"]
    description = json.loads(json.dumps(found.describe()))
    again = reopen_source(description, roles=LABELLED, spill=tmp_path / "run" / "data")
    assert list(again) == ROWS
    assert again.describe()["sha256"] == description["sha256"]
    if name in FILES:
        make([*ROWS[:-1], ("awful", "good")], tmp_path)
        with pytest.raises(DataError, match="has changed since the run began"):
            reopen_source(description, roles=LABELLED)


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1).filter(str.strip)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6))
@pytest.mark.parametrize("name", [*FILES, *OBJECTS])
def test_what_train_accepts_predict_reads_as_the_same_inputs(
    name: str, rows: Rows, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    make = {**FILES, **OBJECTS}[name]
    source = open_labelled(make(rows, tmp_path))
    texts = [text for text, _ in source.read(range(len(source)))]
    assert texts == [text for text, _ in rows]
    if name in FILES:
        batches = asked_batches(str(make(rows, tmp_path)), source.describe(), most=4)
        assert [one.text for batch in batches for one in batch] == texts
    else:
        assert given_inputs(make(rows, tmp_path), source.describe()) == texts


def test_what_was_detected_is_one_line(tmp_path: Path) -> None:
    told: list[str] = []
    path = tmp_path / "spam.csv"
    path.write_text("class;message;;\n" + "".join(f"{i % 2};text {i};;x\n" for i in range(1200)))
    with reported(told.append):
        open_labelled(path)
    assert told == [
        f'read {path}: 1 200 rows, semicolon, header, source="message", target="class" (2 classes), '
        "left out: 2 without a name"
    ]


def test_what_is_held_out_is_reported_when_data_are_opened_and_not_again(tmp_path: Path) -> None:
    told: list[str] = []
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"text {i}\t{i % 2}\n" for i in range(2000)))
    with reported(told.append):
        train, dev = open_rows(path, None, seed=1)
        assert told[1:] == [
            "held out 100 of 2 000 rows as dev data (valid gives others, holdout more or fewer)"
        ]
        again = reopen_training({"train": train.describe(), "valid": dev.describe()})
    assert sum(line.startswith("held out") for line in told) == 1
    assert list(again[1]) == list(dev)


def test_a_file_of_another_encoding_is_told_how_to_be_converted(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_bytes("text,label\nna\u00efve,x\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"old\.csv:2: broken UTF-8 .*; save the file as UTF-8 \(`iconv"):
        open_source(tmp_path / "old.csv")


def test_one_class_is_called_so(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "a.tsv").write_text("text one\tx\ntext two\tx\n")
    with reported(told.append):
        open_labelled(tmp_path / "a.tsv")
    assert told[0].endswith("target=column 2 (1 class)")


def test_a_row_knows_its_line_even_after_a_field_with_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"a\nb",x\nc,y\n')
    found = open_source(path)
    assert [row.place for row in found.rows()] == [f"{path}:2", f"{path}:4"]
    held, dev = hold_out(found, seed=1)
    assert {row.place for part in (held, dev) for row in part.rows()} == {f"{path}:2", f"{path}:4"}


def test_nested_fields_numbers_as_labels_and_missing_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"in": {"text": "a"}, "out": {"id": 3}}\n{"in": {"text": "b"}, "out": {"id": [1, 2]}}\n')
    found = open_labelled(path, source_field="in.text", target_field="out.id")
    assert list(found.read([0, 1])) == [("a", "3"), ("b", "1|2")]
    with pytest.raises(DataError, match=r"has no field in.txt; did you mean in.text"):
        open_labelled(path, source_field="in.txt", target_field="out.id")
    (tmp_path / "b.jsonl").write_text('{"text": "a", "label": 1}\n{"text": "b", "label": null}\n')
    with pytest.raises(DataError, match=r"b.jsonl:2: a missing value \(label\)"):
        open_labelled(tmp_path / "b.jsonl")


def test_a_tsv_with_a_header_and_one_by_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("sentence\tlabel\nit is good\t1\nit is bad\t0\n")
    found = open_labelled(path)
    assert list(found.read([0, 1])) == [("it is good", "1"), ("it is bad", "0")]
    assert found.describe()["header"] is True
    (tmp_path / "b.tsv").write_text("ham\tsee you\nspam\twin now\n")
    found = open_labelled(tmp_path / "b.tsv", source_field="2", target_field="1")
    assert list(found.read([0, 1])) == [("see you", "ham"), ("win now", "spam")]
    batches = asked_batches(str(tmp_path / "b.tsv"), found.describe())
    assert [one.text for batch in batches for one in batch] == ["see you", "win now"]


def test_a_missing_value_of_a_frame_is_named_or_skipped() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", None, "c"], "label": [1, 2, 3]})
    with pytest.raises(DataError, match=r"the train table:2: a missing value \(text\)"):
        open_labelled(frame)
    found = open_labelled(frame, bad_rows="skip")
    assert list(found.read([0, 1])) == [("a", "1"), ("c", "3")]
    assert found.describe()["skipped"] == {"a missing value": 1}


def test_splits_of_a_set_are_found(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    parts = {"train": ROWS[:8], "validation": ROWS[8:]}
    both = datasets.DatasetDict({k: datasets.Dataset.from_dict(columns(rows)) for k, rows in parts.items()})
    train, dev = open_training(both, None, seed=1, holdout=0, spill=tmp_path)
    assert list(train.read(range(8))) == ROWS[:8]
    assert list(dev.read(range(4))) == ROWS[8:]


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
    assert isinstance(found, VectorRows)
    assert found.labels == [str(label) for label in y]
    assert np.array_equal(np.stack(found.sequences), X)


NEW_FORMAT = '''
"""Key=value rows between lines of dashes."""
from anaphora.data.files import TextFile
from anaphora.data.sources.formats import Format
from anaphora.data.sources.table import ObjectTable

def _open(path, folder, hints):
    blocks = [block for block in TextFile(path, folder).whole().decode().split("---\\n") if block.strip()]
    rows = [dict(line.split("=", 1) for line in block.splitlines()) for block in blocks]
    return ObjectTable(str(path), list(rows[0]), lambda: rows, kind="keyed", form="keys and values")

FORMAT = Format("keyed", (".keyed",), _open, about="key=value")
'''


def test_a_new_format_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of CONTRIBUTING: a module with a FORMAT in the folder of the formats, and nothing else."""
    folder = tmp_path / "formats"
    folder.mkdir()
    (folder / "keyed.py").write_text(NEW_FORMAT)
    formats.formats.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(formats, "__path__", [*formats.__path__, str(folder)])
            path = tmp_path / "train.keyed"
            path.write_text("".join(f"text=word {i}\nlabel={'ab'[i % 2]}\n---\n" for i in range(24)))
            model = an.Classifier("bow", embedding=4, steps=2, tokens="word", device="cpu")
            model.fit(path, out=tmp_path / "run")
            assert model.score(path)["examples"] == 24
            answered = [one.text for one in respond(an.load(tmp_path / "run"), str(path), {})]
            predicted = model.predict([f"word {i}" for i in range(24)])
            assert [json.loads(line)["prediction"] for line in answered] == predicted
            assert an.Classifier.resume(tmp_path / "run", steps=3).result_.steps == 3
    finally:
        formats.formats.cache_clear()
    with pytest.raises(DataError, match=r"the ending \.keyed does not tell the form"):
        open_source(tmp_path / "train.keyed")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.zip", b"PK\3\4 no archive", "is damaged and cannot be unpacked"),
        ("a.csv.zst", b"(\xb5/\xfd nothing", "is damaged and cannot be unpacked"),
        ("a.parquet", b"PAR1 nothing", "is damaged or no Parquet"),
        ("a.json", b'{"a": 1}\n{"a": 2}\n', "call it .jsonl"),
        ("a.json", b"[1, 2]", "holds no list of objects"),
        ("a.csv", "\ufefftext".encode("utf-16-le") + b"\0", "begins like UTF-16 and is none"),
    ],
)
def test_damage_is_one_sentence(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=sentence) as caught:
        open_source(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_every_task_holds_out_what_is_asked_for(tmp_path: Path) -> None:
    assert all("holdout" in task.used(name) for task in TASKS.values() for name in task.presets)
    (tmp_path / "a.txt").write_text("".join(f"line {i:02}\n" for i in range(50)))
    for by_line in (True, False):
        for holdout, held in ((0, 5), (0.2, 10), (7, 7)):
            train, dev = open_training_text(
                tmp_path / "a.txt", None, by_line=by_line, holdout=holdout, seed=1
            )
            assert (len(train), len(dev)) == (50 - held, held)
            again = reopen_texts({"train": train.describe(), "valid": dev.describe()})
            assert [list(one.blocks()) for one in again] == [list(train.blocks()), list(dev.blocks())]
    series = {"x": np.arange(100.0)}
    for holdout, held in ((0, 10), (0.25, 25), (40, 40)):
        _, held_out = open_training_series(
            series, None, least=1, whole=False, holdout=holdout, spill=tmp_path
        )
        assert len(held_out) == held
        reopened = reopen_series(held_out.describe(), spill=tmp_path)
        assert reopened.describe() == held_out.describe()
    sentences = [(["a", "b"], ["X", "Y"])] * 40
    _, tagged = open_training_sentences(sentences, None, seed=1, holdout=0.5)
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
    train, dev = open_training_text(path, None, by_line=True, holdout=1, seed=1)
    again = reopen_texts({"train": train.describe(), "valid": dev.describe()})
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


def test_a_stream_without_end_is_an_error_and_no_long_wait(monkeypatch, tmp_path):
    monkeypatch.setattr("anaphora.data.sources.indexed.MOST_ROWS", 50)
    endless = ((f"a {i}", f"b {i}") for i in itertools.count())
    with pytest.raises(DataError, match=r"gave 50 rows and has not ended; give a part .* itertools\.islice"):
        open_source(endless, spill=tmp_path)
    assert not list(tmp_path.iterdir())
    assert len(open_source(itertools.islice(((f"a {i}", "b") for i in itertools.count()), 50))) == 50


def test_a_large_group_of_parquet_is_read_through_a_buffer(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = 4000
    table = pa.table({"source": [f"{i} " + "x" * 2000 for i in range(rows)], "target": ["y"] * rows})
    parquet.write_table(
        table, tmp_path / "one.parquet", row_group_size=rows, compression="none", use_dictionary=False
    )
    read = _most_bytes_read_at_once(tmp_path / "one.parquet")
    assert read < 3 << 20  # the column's part of the group has 8 MB
    assert len(open_source(tmp_path / "one.parquet")) == rows


def _most_bytes_read_at_once(path):
    from anaphora.data.sources.formats import columnar

    class Watched(io.BufferedReader):
        most = 0

        def read(self, size=-1, /):
            found = super().read(size)
            Watched.most = max(Watched.most, len(found))
            return found

    with Watched(io.FileIO(path)) as file:
        for _ in columnar._batches(file, columnar.PARQUET, lambda size: None):
            pass
    return Watched.most
