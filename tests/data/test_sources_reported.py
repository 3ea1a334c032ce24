"""What a `Source` read is reported in one line, and a row or a file that cannot be read by its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from anaphora.data.asked import asked_batches
from anaphora.data.sources.labelled import open_labelled
from anaphora.data.sources.opening import ROW_READER, open_source
from anaphora.data.sources.report import reported
from anaphora.data.split import Split, split
from anaphora.errors import DataError


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
        train, dev = ROW_READER.training(path, None, Split("rows", seed=1))
        assert told[1:] == [
            "held out 100 of 2 000 rows as dev data (valid gives others, holdout more or fewer)"
        ]
        again = ROW_READER.reopen({"train": train.describe(), "valid": dev.describe()})
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
    held, dev = split(found, Split("rows", seed=1))
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
