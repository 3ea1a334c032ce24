"""I1, I2, I3: Readers: every form of file gives the same pairs, and they are opened again."""

from __future__ import annotations

import csv
import gzip
import json
import tarfile
import warnings
from pathlib import Path

import pytest
from reader_forms import FORMS, PAIRS, Form, as_csv, as_jsonl, as_tsv

from anaphora.data.sources.opening import ROW_READER, open_source
from anaphora.data.tokenizers import PairTokenizer
from anaphora.data.tokenizers.vocabularies import single_spaced
from anaphora.errors import DataError


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_pairs(form: Form, tmp_path: Path) -> None:
    pairs = open_source(form(tmp_path, PAIRS), spill=tmp_path / "spill")  # type: ignore[arg-type]
    assert list(pairs) == PAIRS
    assert len(pairs) == 4
    assert pairs[1] == pairs[-3] == PAIRS[1]
    assert pairs.read([3, 0, 3]) == [PAIRS[3], PAIRS[0], PAIRS[3]]
    assert pairs.describe()["rows"] == 4
    with pytest.raises(IndexError):
        pairs[4]


@pytest.mark.parametrize("form", FORMS)
def test_reopening(form: Form, tmp_path: Path) -> None:
    spill = tmp_path / "run" / "data"
    data = form(tmp_path, PAIRS)
    description = json.loads(json.dumps(open_source(data, spill=spill).describe()))  # type: ignore[arg-type]
    assert list(ROW_READER.reopen_one(description)) == PAIRS
    for path in [*tmp_path.glob("train.*"), *spill.glob("*.jsonl")]:
        path.write_bytes(path.read_bytes().replace(b"dogs", b"cats"))
    with pytest.raises(DataError, match="has changed since the run began"):
        ROW_READER.reopen_one(description)


def test_a_spilled_file_is_found_in_a_moved_run(tmp_path: Path) -> None:
    description = open_source(iter(PAIRS), spill=tmp_path / "old").describe()
    (tmp_path / "old").rename(tmp_path / "new")
    assert list(ROW_READER.reopen_one(description, spill=tmp_path / "new")) == PAIRS
    with pytest.raises(DataError, match="No such file"):
        ROW_READER.reopen_one(description)


def test_examples_without_a_folder_cannot_be_reopened() -> None:
    pairs = open_source(PAIRS)
    assert list(pairs) == PAIRS
    with pytest.raises(DataError, match="not kept"):
        ROW_READER.reopen_one(pairs.describe())


def test_an_embedded_corpus(tmp_path: Path) -> None:
    dev = open_source("numbers:fr", role="valid")
    description = json.loads(json.dumps(dev.describe()))
    assert {key: description[key] for key in ("name", "variant", "split", "size")} == {
        "name": "numbers",
        "variant": "fr",
        "split": "dev",
        "size": 500,
    }
    assert list(ROW_READER.reopen_one(description)) == list(dev)
    with pytest.raises(DataError, match="has changed"):
        ROW_READER.reopen_one({**description, "seed": 2})
    with pytest.raises(DataError, match="numbers:nl does not exist; numbers has de, fr"):
        open_source("numbers:nl")
    with pytest.raises(
        DataError, match="nmbers is neither a file nor an embedded corpus; did you mean numbers"
    ):
        open_source("nmbers")


@pytest.mark.parametrize("form", [as_tsv, as_csv, as_jsonl])
def test_compressed(form: Form, tmp_path: Path) -> None:
    path = Path(str(form(tmp_path, PAIRS)))
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    pairs = open_source(packed, spill=tmp_path / "spill")
    assert list(pairs) == PAIRS
    assert list(ROW_READER.reopen_one(pairs.describe())) == PAIRS
    assert list((tmp_path / "spill").iterdir()) == []
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(DataError, match="is damaged and cannot be unpacked"):
        open_source(packed)


def test_line_ends_byte_order_mark_and_blank_lines(tmp_path: Path) -> None:
    for name, content in {
        "a.tsv": b"\xef\xbb\xbfa\tb\r\nc\td\r\n\r\n",
        "b.tsv": b"a\tb\n\nc\td",
        "c.csv": b"\xef\xbb\xbfsource,target\r\na,b\r\n\r\nc,d\r\n",
        "d.jsonl": b'\xef\xbb\xbf{"source": "a", "target": "b"}\r\n\n{"source": "c", "target": "d"}',
    }.items():
        (tmp_path / name).write_bytes(content)
        assert list(open_source(tmp_path / name)) == [("a", "b"), ("c", "d")], name


def test_further_columns_are_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\tby me\nc\td\t\n")
    pairs = open_source(tmp_path / "a.tsv")
    assert list(pairs) == [("a", "b"), ("c", "d")]
    assert pairs.describe()["columns_left_out"] == 1


def test_named_fields(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;de;en\n1;ja;yes\n")
    assert open_source(tmp_path / "a.csv", source_field="en", target_field="de")[0] == ("yes", "ja")
    with pytest.raises(DataError, match="has the columns id, de, en; name the input and the output"):
        open_source(tmp_path / "a.csv")
    (tmp_path / "b.jsonl").write_text('{"tgt": "ja", "n": NaN, "src": "yes"}\n')
    assert open_source(tmp_path / "b.jsonl")[0] == ("yes", "ja")
    with pytest.raises(DataError, match="has no field sorce; did you mean src"):
        open_source(tmp_path / "b.jsonl", source_field="sorce")
    (tmp_path / "c.tsv").write_text("en\tde\nyes\tja\n")
    assert list(open_source(tmp_path / "c.tsv", target_field="de")) == [("yes", "ja")]
    with pytest.raises(DataError, match="the first line does not name nl, so columns have numbers"):
        open_source(tmp_path / "c.tsv", target_field="nl")
    assert (
        len(open_source(tmp_path / "c.tsv", role="dev", target_field="nl")) == 2
    )  # beside a CSV to train on


def test_quoted_fields_go_over_lines(tmp_path: Path) -> None:
    rows = [('he said "yes"\nand left', "er,\r\nsagte"), ("x" * 200_000, "y")]
    pairs = open_source(as_csv(tmp_path, rows))  # type: ignore[arg-type]
    assert pairs.read([1, 0]) == [rows[1], rows[0]]
    assert csv.field_size_limit() == 131_072


def test_columns_without_names_are_given_by_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("fine,pos\nbad,neg\ngood,pos\npoor,neg\nso so,pos\n")
    with pytest.raises(DataError, match="add one, or give columns by number: --source-field 1"):
        open_source(tmp_path / "a.csv")
    assert open_source(tmp_path / "a.csv", source_field="1")[0] == ("fine", "pos")


def test_quotes_of_a_tsv_stay_and_are_reported_if_a_column_has_them_all(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('"a"\t"b"\n"c"\t"d"\n"e"\t"f"\n')
    with pytest.warns(
        UserWarning, match=r"a\.tsv: the values of a column are in quotes, which a \.tsv file keeps"
    ):
        assert open_source(tmp_path / "a.tsv")[0] == ('"a"', '"b"')
    (tmp_path / "b.tsv").write_text('"a"\tb\nc\t"d"\n"e" he said\tf\n')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_source(tmp_path / "b.tsv")


ARCHIVE = Path(__file__).parents[3] / "shared" / "data" / "multi30k-en-de.tar.gz"


@pytest.mark.realdata
@pytest.mark.skipif(not ARCHIVE.exists(), reason="shared/data/multi30k-en-de.tar.gz is absent")
def test_a_real_corpus_survives_byte_pair_encoding(tmp_path: Path) -> None:
    names = [f"multi30k-en-de/tok/train.lc.norm.tok.{language}" for language in ("en", "de")]
    with tarfile.open(ARCHIVE) as archive:
        for name in names:
            archive.extract(name, tmp_path, filter="data")
    pairs = open_source((tmp_path / names[0], tmp_path / names[1]))
    assert len(pairs) == 29_000
    tokenizer = PairTokenizer.train(pairs, kind="bpe", vocab_size=8000)
    for side, one in ((0, tokenizer.source), (1, tokenizer.target)):
        texts = [pair[side] for pair in pairs.read(range(0, len(pairs), 5))]
        assert [one.decode(ids) for ids in one.encode_batch(texts)] == list(map(single_spaced, texts))
