"""Words with tags: the rows of UniMorph are recognised, and each tag is one symbol."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.data.asked import asked_batches
from anaphora.data.sources.opening import ROW_READER, open_source
from anaphora.data.sources.report import reported
from anaphora.data.table import HeldTable
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.data.tokenizers.own import read_own_tokenizer
from anaphora.data.tokenizers.vocabularies import are_bundles, without_tags
from anaphora.errors import DataError

ROWS = [
    ("go", "went", "V;PST"),
    ("run up", "ran up", "V;PST"),
    ("nice", "nice", "ADJ"),
    ("go", "go", "V;NFIN"),
]
PAIRS = [("go V;PST", "went"), ("run up V;PST", "ran up"), ("nice ADJ", "nice"), ("go V;NFIN", "go")]


def written(path: Path, rows: list[tuple[str, ...]]) -> str:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("order", "source", "target"), [((0, 1, 2), "1+3", "2"), ((0, 2, 1), "1+2", "3")], ids=["form", "tags"]
)
def test_rows_of_unimorph_are_recognised_and_opened_again(tmp_path, order, source, target):
    path = written(tmp_path / "english-train", [tuple(row[i] for i in order) for row in ROWS])
    said: list[str] = []
    with reported(said.append):
        found = open_source(path)
    assert list(found) == PAIRS
    assert said[0] == f"assumed, for words with forms and tags: source_field={source}, target_field={target}"
    assert f"source=columns {source}, target=column {target}" in said[1]
    assert list(ROW_READER.reopen_one(found.describe())) == PAIRS


@pytest.mark.parametrize(
    "third",
    ["CC-BY 2.0", "PST", "en;de", "V;PST;"],
    ids=["a licence", "single words", "small", "nothing after ;"],
)
def test_other_third_columns_are_left_out(tmp_path, third):
    path = written(tmp_path / "a.tsv", [("go", "geh", third)] * 3)
    assert list(open_source(path)) == [("go", "geh")] * 3


def test_test_data_are_read_as_the_training_data_were(tmp_path):
    trained = open_source(written(tmp_path / "train.tsv", ROWS)).describe()
    path = written(tmp_path / "test.tsv", [("nice", "nicer", "CMPR"), ("go", "goes", "3SG")])
    assert list(open_source(path, role="test", learnt=trained)) == [
        ("nice CMPR", "nicer"),
        ("go 3SG", "goes"),
    ]
    assert list(open_source(path)) == [("nice", "nicer"), ("go", "goes")]


@pytest.mark.parametrize(
    ("lines", "answered"),
    [
        (ROWS, "go\twent\tV;PST\tX"),
        ([(lemma, tags) for lemma, _, tags in ROWS], "go\tV;PST\tX"),
        ([(source,) for source, _ in PAIRS], "X"),
    ],
    ids=["lemma, form, tags", "lemma, tags", "one text"],
)
def test_predict_reads_rows_with_or_without_forms(tmp_path, lines, answered):
    trained = open_source(written(tmp_path / "train.tsv", ROWS)).describe()
    (batch,) = asked_batches(written(tmp_path / "asked.tsv", lines), trained)
    assert [one.text for one in batch] == [source for source, _ in PAIRS]
    assert batch[0].with_answer("X") == answered


def test_a_row_without_tags_is_named_or_skipped(tmp_path):
    path = written(tmp_path / "a.tsv", [*ROWS * 400, ("go", "goes", " ")])  # further down than is looked
    with pytest.raises(DataError, match=r"a\.tsv:1601: an empty side \(source\)"):
        open_source(path)
    found = open_source(path, bad_rows="skip")
    assert len(found) == 1600
    assert found.describe()["skipped"] == {"an empty side": 1}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "tsv", "parquet"])
def test_several_columns_of_any_table_can_be_the_input(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(ROWS, columns=["lemma", "form", "tags"])
    path = tmp_path / f"a.{ending}"
    if ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep="\t" if ending == "tsv" else ",", index=False)
    named = {"source_field": "lemma+tags", "target_field": "form"}
    found = open_source(path, **named)
    assert list(found) == PAIRS
    assert list(ROW_READER.reopen_one(found.describe())) == PAIRS
    assert list(open_source(path, source_field="lemma+tags")) == PAIRS
    (batch,) = asked_batches(str(path), found.describe())
    assert [one.text for one in batch] == [source for source, _ in PAIRS]
    assert list(open_source(frame, **named)) == PAIRS
    with pytest.raises(DataError, match="has no field tag; did you mean tags"):
        open_source(path, source_field="lemma+tag", target_field="form")


def test_a_column_whose_own_name_has_a_plus_is_that_column(tmp_path):
    frame = pandas.DataFrame({"a+b": ["x", "y"], "a": ["1", "2"], "b": ["3", "4"]})
    assert list(open_source(frame, source_field="a+b", target_field="a")) == [("x", "1"), ("y", "2")]


def test_each_tag_is_one_symbol_and_the_rest_is_letters():
    tokenizer = Tokenizer.train([source for source, _ in PAIRS], kind="char+tags", vocab_size=99)
    cut = {text: tokenizer.pieces(tokenizer.encode(text)) for text, _ in PAIRS}
    assert cut["run up V;PST"] == ["r", "u", "n", "▁", "u", "p", ";V", ";PST"]
    assert cut["nice ADJ"] == ["n", "i", "c", "e", ";ADJ"]
    assert tokenizer.encode("go;V;PST") == tokenizer.encode("  go \t V;PST ")
    assert tokenizer.pieces(tokenizer.encode("go V;FUT")) == ["g", "o", ";V", "<unk>"]
    for again in (
        Tokenizer.from_json(tokenizer.to_json()),
        read_own_tokenizer(tokenizer.to_json(), "auto", trust=False),
    ):
        assert (again.kind, again.spellings) == ("char+tags", tokenizer.spellings)
        assert again.encode("run up V;PST") == tokenizer.encode("run up V;PST")


def test_lower_case_folds_words_and_tags_alike():
    tokenizer = Tokenizer.train(["Go ADJ", "GO V;PST"], kind="char+tags", vocab_size=99, lowercase=True)
    assert tokenizer.pieces(tokenizer.encode("go ADJ")) == ["g", "o", ";adj"]


def test_one_vocabulary_has_a_letter_once_and_forms_have_no_tags():
    pairs = HeldTable([("go V;PST", "wENT UP"), ("nice ADJ", "nicer")], {"kind": "pairs"})
    both = PairTokenizer.of_letters(pairs, vocab_size=99)
    again = PairTokenizer.from_json(both.to_json())
    for found in (both, again):
        assert found.joint
        assert (found.source.kind, found.target.kind) == ("char+tags", "char")
        assert found.source.spellings == found.target.spellings
        assert len(set(found.source.spellings)) == found.source.size
        ((g, o, v, past),), (form,) = found.sources(["go V;PST"]), found.targets(["go UP"])
        assert form[:2] == [g, o]
        assert found.source.pieces([v, past]) == [";V", ";PST"]
        assert found.target.pieces(form) == ["g", "o", "▁", "U", "P"]  # not a tag, though it looks like one
        assert found.target.decode(form) == "go UP"


EVERY = Tokenizer.train(
    ["".join(map(chr, range(32, 0x250))), "a b;A", "a;B;C"], kind="char+tags", vocab_size=2000
)


@given(st.text(alphabet="ab ;AB.1é\t\n", max_size=12))
def test_what_comes_back_is_what_normalized_says(text):
    symbols = EVERY.encode(text)
    if "<unk>" not in EVERY.pieces(symbols):
        assert EVERY.decode(symbols) == EVERY.normalized(text)
        assert EVERY.encode(EVERY.normalized(text)) == symbols


def test_only_capitals_between_semicolons_are_tags():
    assert are_bundles(["N;DEF/INDF", "V.PTCP;PRS", "N;PSS1S"])
    assert not are_bundles(["V;PST", "V; PST"])
    assert not are_bundles(["a;b"])
    assert not are_bundles([])
    assert without_tags(["go V;PST", "run up V;NFIN"]) == ["go", "run up"]
    assert without_tags(["go V;PST", "V;NFIN"]) == []
