"""Which first rows are names of columns: no row of data is lost without a word."""

from __future__ import annotations

import warnings

import pytest

from anaphora.data.asked import asked_batches
from anaphora.data.series_csv import read_table, table_at
from anaphora.data.sources.formats.comma import known_names, like_data, like_names
from anaphora.data.sources.opening import open_source
from anaphora.errors import DataError

WORDS = [("world", "monde"), ("cat", "chat"), ("dog", "chien"), ("house", "maison")]
TEXTS = [(f"some words {i}", f"quelques mots {i}") for i in range(30)]
KINDS = [(f"some words {i}", "ham" if i % 2 else "spam") for i in range(30)]


def written(folder, name, rows):
    between = "\t" if name.endswith(".tsv") else ","
    (folder / name).write_text("".join(f"{between.join(row)}\n" for row in rows))
    return folder / name


@pytest.mark.parametrize("rows", [WORDS, [("a b", "c d"), *TEXTS], [("World", "Monde"), *WORDS]])
def test_a_first_row_that_nothing_tells_for_names_is_named(tmp_path, rows):
    path = written(tmp_path, "pairs.csv", rows)
    with pytest.warns(
        UserWarning, match=f"pairs.csv:1: the first row .{', '.join(rows[0])}. is read as names"
    ):
        assert len(open_source(path)) == len(rows) - 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(open_source(path, source_field="1", target_field="2")) == rows
        named = open_source(path, source_field=rows[0][0], target_field=rows[0][1])
        assert list(named) == rows[1:]


def test_predict_names_the_row_as_well(tmp_path):
    path = written(tmp_path, "words.csv", [("world",), ("cat",), ("dog",)])
    with pytest.warns(UserWarning, match=r"words.csv:1: the first row \(world\) is read as names"):
        (batch,) = asked_batches(str(path), {"kind": "memory"})
    assert [one.text for one in batch] == ["cat", "dog"]


@pytest.mark.parametrize(
    "rows",
    [
        [("text", "texte"), *WORDS],  # a usual name
        [("english", "French"), *WORDS],  # names that are not usual, all of them known
        [("spoken", "written"), *TEXTS],  # single words above texts
        [("my_words", "theirs"), *WORDS],
        [("some thing", "kind"), *KINDS],  # `kind` never comes below, where two values come again and again
        [("item", "price in €"), *((word, str(i)) for i, (word, _) in enumerate(WORDS))],
    ],
)
def test_names_are_known_as_such_without_a_note(tmp_path, rows):
    path = written(tmp_path, "pairs.csv", rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(open_source(path)) == rows[1:]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([("Go.", "Va !"), ("Run!", "Cours !"), ("Who?", "Qui ?")], "Go. ends like the sentences below"),
        ([("a.wav", "one"), ("b.wav", "two")], "a.wav is a file like those below"),
        ([("1", "one"), ("2", "two")], "1 stands above numbers"),
        ([*KINDS], "spam is also a value below"),
    ],
)
def test_a_first_row_of_data_is_refused(tmp_path, rows, told):
    with pytest.raises(DataError, match=f"pairs.csv:1: the first row looks like data.*{told}"):
        open_source(written(tmp_path, "pairs.csv", rows))


def test_a_tsv_file_says_when_it_reads_names_as_data(tmp_path):
    path = written(tmp_path, "kinds.tsv", [("phrase", "kind"), *KINDS])
    with pytest.warns(UserWarning, match=r"kinds.tsv:1: the first row \(phrase, kind\) is read as data"):
        assert len(open_source(path)) == 31
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(open_source(path, source_field="phrase", target_field="kind")) == 30
        assert len(open_source(written(tmp_path, "words.tsv", WORDS))) == 4
        assert len(open_source(written(tmp_path, "plain.tsv", KINDS))) == 30


@pytest.mark.parametrize("first", ["2020-01-01,Berlin,3", "north,Berlin,3.5"])
def test_a_series_whose_first_row_is_a_step_is_refused(tmp_path, first):
    below = "2020-01-02,Berlin,4\n" if "2020" in first else "north,Berlin,4\n"
    (tmp_path / "a.csv").write_text(f"{first}\n{below}{below}{below}")
    with pytest.raises(DataError, match=r"a.csv:1: holds values where the names of the columns belong \("):
        read_table(table_at(tmp_path / "a.csv"))


def test_whole_numbers_may_name_the_columns_of_a_series(tmp_path):
    (tmp_path / "a.csv").write_text("day,2019,2020\n2020-01-01,1.5,2\n2020-01-02,2,3\n")
    assert read_table(table_at(tmp_path / "a.csv"))[0] == ("2019", "2020")


def test_rows_too_few_to_tell_tell_nothing():
    assert like_data(["a", "b"], []) is None
    assert not like_names(["a", "b"], [["1", "2"]])
    assert known_names(["a", "Label"])
    assert not known_names(["en", "hello"])
    assert known_names(["Sentence #", "Word", "POS", "Tag"])
    assert not known_names(["la", "vie", "est", "belle"])
