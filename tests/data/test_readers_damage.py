"""I1, I2, I3: Readers: every kind of damage gets its sentence, wherever the file is cut into chunks."""

from __future__ import annotations

import bz2
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reader_forms import as_csv, as_jsonl, as_parallel, as_tsv

from anaphora.data import files
from anaphora.data.sources.opening import open_source
from anaphora.errors import DataError

GOOD = b"a\tb\n" * 16
BAD: dict[str, tuple[str, bytes, str]] = {
    "ragged": ("tsv", GOOD + b"a\tb\tc\n", r"train.tsv:17: wrong number of columns \(3 where 2 are wanted\)"),
    "one column": ("tsv", b"a b\n", r"train.tsv:1: wrong number of columns \(1 where 2"),
    "empty source": ("tsv", GOOD + b"\tb\n", r"train.tsv:17: an empty side \(source\)"),
    "blank target": ("tsv", GOOD + b"a\t  \n", r"train.tsv:17: an empty side \(target\)"),
    "utf-8": (
        "tsv",
        GOOD + b"a\tb\xe9\n",
        r"train.tsv:17: broken UTF-8 \(byte 0xE9, number 67 of the file\)",
    ),
    "surrogate": ("tsv", GOOD + b"a\tb\xed\xa0\x80\n", r"train.tsv:17: broken UTF-8"),
    "nul": ("tsv", GOOD + b"a\tb\0\n", r"train.tsv:17: a NUL character \(byte 67 of the file\)"),
    "cr": ("tsv", GOOD + b"a\tb\rc\n", r"train.tsv:17: a carriage return inside the row"),
    "old mac": ("tsv", b"a\tb\rc\td\r", r"train.tsv:1: a carriage return inside the row"),
    "csv ragged": (
        "csv",
        b"s,t\na,b\n\na,b,c\n",
        r"train.csv:4: wrong number of columns \(3 where the header has 2",
    ),
    "csv quotes": ("csv", b's,t\na,b\n"a,b\nc,d\n', r"train.csv:3: broken quotes \(unexpected end of data"),
    "csv quote inside": ("csv", b's,t\n"a"b,c\n', r"train.csv:2: broken quotes"),
    "csv utf-8": ("csv", b"s,t\na,\xff\n", r"train.csv:2: broken UTF-8 \(byte 0xFF, number 6 of the file"),
    "csv empty": ("csv", b"s,t\n,b\n", r"train.csv:2: an empty side \(source"),
    "csv nul": ("csv", b"s,t\na,b\0\n", r"train.csv:2: a NUL character"),
    "json": ("jsonl", b'{"s": "a", "t": "b"}\n{"s": "a",}\n', r"train.jsonl:2: broken JSON"),
    "json cut": ("jsonl", b'{"s": "a", "t": "b"}\n{"s": "a", "t": "', r"train.jsonl:2: broken JSON"),
    "json deep": (
        "jsonl",
        b'{"s": "a", "t": "b"}\n' + b"[" * 100_000 + b"\n",
        r"jsonl:2: broken JSON \(nested too deeply",
    ),
    "json digits": ("jsonl", b'{"s": "a", "t": "b", "n": ' + b"9" * 9999 + b"}\n", r"jsonl:1: broken JSON"),
    "json twice": ("jsonl", b'{"s": "a", "t": "b", "s": "c"}\n', r"jsonl:1: a name that occurs twice \(s\)"),
    "json missing": ("jsonl", b'{"s": "a", "t": "b"}\n{"s": "a"}\n', r"jsonl:2: a missing field \(t\)"),
    "json number": ("jsonl", b'{"s": "a", "t": 3}\n', r"jsonl:1: a field that is not text \(t, a int\)"),
    "json array": ("jsonl", b'["a", "b"]\n', r"jsonl:1: not a JSON object"),
    "json surrogate": ("jsonl", b'{"s": "a", "t": "\\ud800"}\n', r"jsonl:1: half a character"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_named_or_skipped_and_counted(case: str, tmp_path: Path) -> None:
    form, content, sentence = BAD[case]
    path = tmp_path / f"train.{form}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=sentence) as caught:
        open_source(path)
    assert "\n" not in str(caught.value)
    assert 'bad_rows="skip"' in str(caught.value)
    good = b'{"s": "x", "t": "y"}\n' if form == "jsonl" else b"x\ty\n"
    if case in ("csv quotes", "json cut", "old mac"):  # the damage swallows what follows
        return
    path.write_bytes(content + (b"x,y\n" if form == "csv" else good))
    pairs = open_source(path, bad_rows="skip")
    assert pairs[-1] == ("x", "y")
    reason = next(iter(pairs.describe()["skipped"]))
    assert pairs.describe()["skipped"] == {reason: 1}
    assert reason in str(caught.value)


def test_lines_behind_a_quote_that_is_not_closed_count_as_bad(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('s,t\na,b\n"c,d\ne,f\ng,h\n')
    pairs = open_source(tmp_path / "a.csv", bad_rows="skip")
    assert list(pairs) == [("a", "b")]
    assert pairs.describe()["skipped"] == {"broken quotes": 3}


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.tsv", b"", "is empty"),
        ("a.tsv", b"\n\n", "has no usable row"),
        ("a.tsv", "abc\tdef\n".encode("utf-16-le"), "looks like UTF-16"),
        ("a.csv", b"s,s\na,b\n", "a.csv:1: the header names s twice"),
        ("a.csv", b"s\na\n", "only the field s; a pair needs two"),
        ("a.csv", b"s,t\n", "no usable row"),
        ("a.csv", b'"s,t\n', "a.csv:1: the header cannot be read"),
        ("a.csv", b"s,\xff\n", "a.csv:1: broken UTF-8 in the header"),
        ("a.jsonl", b'{"s": "a"}\n', "only the field s"),
        ("a.xlsx", b"PK", "the ending .xlsx does not tell the form"),
        ("a.tsv", bz2.compress(b"a\tb\n"), r"a.tsv is a packed file \(bzip2\); unpack it"),
        ("a.csv", b"PK\x03\x04 sheet", r"a.csv is a packed file \(zip, as are .xlsx"),
    ],
)
def test_a_file_that_cannot_be_used_at_all(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        open_source(tmp_path / name, bad_rows="skip" if "usable" in sentence else "strict")


def test_what_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        open_source(tmp_path / "none.tsv")
    (tmp_path / "folder.tsv").mkdir()
    os.mkfifo(tmp_path / "pipe.tsv")
    with pytest.raises(DataError, match="is not a file"):
        open_source(tmp_path / "folder.tsv")
    with pytest.raises(DataError, match="is not a file"):
        open_source(tmp_path / "pipe.tsv")
    with pytest.raises(DataError, match="A int cannot be read as pairs"):
        open_source(3)  # type: ignore[arg-type]


def test_parallel_files_of_different_length(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("1\n2\n")
    with pytest.raises(DataError, match=r"a has 3 lines but .*b has 2"):
        open_source((tmp_path / "a", tmp_path / "b"))


def test_a_bad_line_takes_its_partner_with_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n\xff\n3\n4\n")
    (tmp_path / "b").write_bytes(b"1\n2\n \n4")
    data = (str(tmp_path / "a"), str(tmp_path / "b"))
    with pytest.raises(DataError, match="a:2: broken UTF-8"):
        open_source(data)
    pairs = open_source(data, bad_rows="skip")
    assert list(pairs) == [("1", "1"), ("4", "4")]
    assert pairs.describe()["skipped"] == {data[0]: {"broken UTF-8": 1}, data[1]: {"an empty side": 1}}


def test_bad_examples_from_python(tmp_path: Path) -> None:
    examples: list[object] = [("a", "b"), ("a", ""), "ab", ("a", 3), ("a", "\ud800"), ("a", "b", "c")]
    for example in examples[1:]:
        with pytest.raises(DataError, match="dev examples:2: "):
            open_source([("a", "b"), example], role="dev", spill=tmp_path)  # type: ignore[list-item]
    assert list(tmp_path.iterdir()) == []
    for spill in (None, tmp_path):
        pairs = open_source(examples, bad_rows="skip", spill=spill)  # type: ignore[arg-type]
        assert list(pairs) == [("a", "b")]
        assert sum(pairs.describe()["skipped"].values()) == 5


def test_examples_that_fail_half_way_leave_nothing_behind(tmp_path: Path) -> None:
    def examples() -> Iterator[tuple[str, str]]:
        yield "a", "b"
        raise RuntimeError("the generator's own fault")

    with pytest.raises(RuntimeError, match="own fault"):
        open_source(examples(), spill=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_changed_while_in_use(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"ab\tcd\nef\tgh\n")
    pairs = open_source(path)
    with path.open("r+b") as file:
        file.write(b"abcdef")
    with pytest.raises(DataError, match="was changed while it was in use"):
        pairs[0]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 7)
    monkeypatch.setattr(files, "LONGEST_ROW", 20)


@pytest.mark.usefixtures("small_chunks")
def test_rows_longer_than_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"a\tb\n" + b"x" * 50 + b"\nc\td\n" + b"y" * 21 + b"\te\nf\tg\n" + b"z" * 90)
    with pytest.raises(DataError, match=r"a.tsv:2: a row that is too long"):
        open_source(path)
    pairs = open_source(path, bad_rows="skip")
    assert list(pairs) == [("a", "b"), ("c", "d"), ("f", "g")]
    assert pairs.describe()["skipped"] == {"a row that is too long": 3}


TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\t\0"), min_size=1, max_size=8
)


@given(st.lists(st.tuples(TEXT, TEXT).filter(lambda p: all(s.strip() for s in p)), min_size=1, max_size=12))
def test_where_chunks_end_does_not_matter(pairs: list[tuple[str, str]]) -> None:
    """Chunks of 7 bytes cut rows and characters everywhere; the same rows must come out."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(files, "CHUNK", 7)
        for form in (as_tsv, as_jsonl, as_parallel, as_csv):
            assert list(open_source(form(Path(folder), pairs))) == pairs  # type: ignore[arg-type]


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_in_a_sentence(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("tsv", "csv", "jsonl", "tsv.gz"):
            path = Path(folder) / f"a.{ending}"
            path.write_bytes(content)
            for bad_rows in ("strict", "skip"):
                try:
                    assert all(s and t for s, t in open_source(path, bad_rows=bad_rows))
                except DataError as error:
                    assert "\n" not in str(error)  # noqa: PT017
