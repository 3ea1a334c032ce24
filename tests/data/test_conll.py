"""Files of columns: what is a word, what is not, what is wrong, and the same file with other tags."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.data.sources.conll import (
    Columns,
    form_of,
    open_sentences,
    words_of,
)
from anaphora.data.sources.report import reported
from anaphora.data.sources.tagged import TAGGED_READER
from anaphora.data.split import Split
from anaphora.errors import DataError

CONLLU = """\
# newdoc
# sent_id = 1
# text = I don't run.
1\tI\tI\tPRON\tPRP\t_\t3\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\trun\trun\tVERB\tVB\t_\t0\troot\t_\t_
4.1\tfast\tfast\tADV\tRB\t_\t_\t_\t4:advmod\t_

# sent_id = 2
1\t#\t#\tSYM\tNN\t_\t0\troot\t_\t_
2\t1 000\t1000\tNUM\tCD\t_\t1\tnummod\t_\t_

"""


def written(folder, text, name="x.conll"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def sentences(data, **options):
    return [(words_of(words), words_of(tags)) for words, tags in open_sentences(data, **options)]


def test_word_first_tag_last_blank_line_between(tmp_path):
    path = written(
        tmp_path, "-DOCSTART- -X- O\n\nTeddy NNP B-PER\nbears NNS O\n\n\n. . O\n", name="eng.train"
    )
    assert sentences(path) == [(["Teddy", "bears"], ["B-PER", "O"]), (["."], ["O"])]
    assert sentences(path, target_field="2") == [(["Teddy", "bears"], ["NNP", "NNS"]), (["."], ["."])]


def test_tabs_keep_spaces_inside_words_and_a_line_of_white_space_is_blank(tmp_path):
    path = written(tmp_path, "New York\tB-LOC\n\t\nhere\tO\r\n\r\n")
    assert sentences(path) == [(["New York"], ["B-LOC"]), (["here"], ["O"])]


def test_a_hash_begins_a_comment_only_where_it_is_no_row(tmp_path):
    path = written(tmp_path, "# a remark\n#tag\tO\n#\tO\n# id = 7\nend\tO\n")
    assert sentences(path) == [(["#tag", "#", "end"], ["O", "O", "O"])]
    path = written(tmp_path, "# sent_id = 1\n# X O\nwe X O\n", name="y.conll")
    assert sentences(path) == [(["we"], ["O"])]


def test_conllu_takes_upos_or_the_column_named_and_leaves_ranges_aside(tmp_path):
    path = written(tmp_path, CONLLU, "x.conllu")
    first, second = sentences(path)
    assert first == (["I", "do", "n't", "run"], ["PRON", "AUX", "PART", "VERB"])
    assert second == (["#", "1 000"], ["SYM", "NUM"])
    assert sentences(path, target_field="xpos")[0][1] == ["PRP", "VBP", "RB", "VB"]
    assert sentences(path, source_field="lemma")[0][0] == ["I", "do", "not", "run"]


def test_compressed_files_read_the_same(tmp_path):
    path = tmp_path / "x.conllu.gz"
    path.write_bytes(gzip.compress(CONLLU.encode()))
    assert sentences(path) == sentences(written(tmp_path, CONLLU, "x.conllu"))


def test_the_same_file_comes_back_with_other_tags(tmp_path):
    columns = Columns("x", "conllu", None, "xpos")
    text = []
    for block in columns.blocks(CONLLU.split("\n")[:-1]):
        tags = [f"T{i}" for i in range(len(columns.words(block)))]
        text += columns.tagged(block, tags, columns=10)
    before, after = CONLLU.split("\n"), [*text, ""]
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert changed == [3, 5, 6, 7, 11, 12]
    assert after[6] == "3\tn't\tnot\tPART\tT2\t_\t4\tadvmod\t_\t_"


@pytest.mark.parametrize(
    ("row", "expected"),
    [("dog NN O", "dog NN X"), ("dog NN", "dog NN X"), ("dog", "dog X")],
    ids=["replaced", "added", "words only"],
)
def test_tags_replace_the_last_column_or_are_added_where_it_is_missing(row, expected):
    columns = Columns("x", "conll")
    (block,) = columns.blocks([row])
    assert columns.tagged(block, ["X"], columns=3) == [expected]


@given(st.lists(st.lists(st.text("ab#.-1", min_size=1, max_size=4), min_size=1, max_size=5), min_size=1))
def test_what_is_written_is_read_again(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("spill")
    given = [(words, [f"t{len(word)}" for word in words]) for words in rows]
    kept = open_sentences(given, spill=folder)
    assert kept.facts["kind"] == "conll"
    assert [(words_of(words), words_of(tags)) for words, tags in kept] == given


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a O\nb\n", r"x.conll:2: wrong number of columns \(1 where 2 are wanted\)"),
        ("a\nb\n", r"x.conll:1: only one column, so no tag"),
        ("a\tO\n\tO\n", r"x.conll:2: an empty word"),
        ("a\tO\nb\t\n", r"x.conll:2: an empty tag"),
        ("\n\n", "x.conll has no usable row"),
        ("", "x.conll is empty"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, text, told):
    with pytest.raises(DataError, match=told) as caught:
        open_sentences(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_broken_utf8_is_told_with_its_line_and_its_sentence_left_out_if_asked(tmp_path):
    path = tmp_path / "x.conll"
    path.write_bytes(b"a O\n\nb\xff O\nc O\n\nd O\ne\n\nf O\n")
    with pytest.raises(DataError, match=r"x\.conll:3: broken UTF-8"):
        open_sentences(path)
    found = open_sentences(path, bad_rows="skip")
    assert [words for words, _ in found] == ["a", "f"]
    assert found.facts["skipped"] == {"broken UTF-8": 1, "wrong number of columns": 1}


@pytest.mark.parametrize(
    ("name", "field", "told"),
    [
        ("x.conll", "pos", "has no column pos; write a number from 1 to 2"),
        ("x.conll", "3", "has no column 3"),
        ("x.conllu", "xpso", "did you mean xpos"),
    ],
)
def test_columns_that_are_not_there(tmp_path, name, field, told):
    path = written(tmp_path, CONLLU if name.endswith("u") else "a O\n", name)
    with pytest.raises(DataError, match=told):
        open_sentences(path, target_field=field)


def test_a_tsv_holds_pairs_or_columns(tmp_path):
    pairs = written(tmp_path, "a dog\tD N\nruns\tV\n", "pairs.tsv")
    columns = written(tmp_path, "a\tD\ndog\tN\n\nruns\tV\n", "columns.tsv")
    assert (form_of(pairs), form_of(columns)) == ("tsv", "conll")
    assert sentences(pairs) == sentences(columns) == [(["a", "dog"], ["D", "N"]), (["runs"], ["V"])]
    packed = tmp_path / "pairs.tsv.gz"
    packed.write_bytes(gzip.compress(pairs.read_bytes()))
    assert sentences(packed) == sentences(pairs)
    with pytest.raises(DataError, match=r"not one tag for each word \(2 words, 1 tags\)"):
        open_sentences(written(tmp_path, "a dog\tD\n", "bad.tsv"))


def test_named_fields_and_parallel_files(tmp_path):
    table = written(tmp_path, '{"text": "a dog", "pos": "D N"}\n', "x.jsonl")
    assert sentences(table, source_field="text", target_field="pos") == [(["a", "dog"], ["D", "N"])]
    both = (written(tmp_path, "a dog\n", "x.words"), written(tmp_path, "D N\n", "x.tags"))
    assert sentences(both) == [(["a", "dog"], ["D", "N"])]


WORDS = [("1", "a", "O"), ("", "big dog", "N"), ("2", "c", "O"), ("2", "d", "N")]
BY_WORD = "Sentence #,Word,POS,Tag\n" + "".join(f"{mark},{word},_,{tag}\n" for mark, word, tag in WORDS)
BY_SENTENCE = [(["a", "big dog"], ["O", "N"]), (["c", "d"], ["O", "N"])]


def test_a_table_with_a_word_a_row_has_its_sentences_by_number(tmp_path):
    path = written(tmp_path, BY_WORD, "x.csv")
    said = []
    with reported(said.append):
        assert sentences(path) == BY_SENTENCE
    assert said == [
        f'read {path}: 2 rows, comma, header, sentences by Sentence #, source="Word", target="Tag", left out: POS'
    ]
    assert sentences(path, target_field="POS")[1] == (["c", "d"], ["_", "_"])
    assert sentences(path, role="dev", target_field="upos") == BY_SENTENCE
    numbers = [1, None, 2, 2]
    rows = [{"sentence_id": n, "token": w, "tag": t} for n, (_, w, t) in zip(numbers, WORDS, strict=True)]
    assert sentences(rows) == BY_SENTENCE
    lines = written(tmp_path, "".join(f"{json.dumps(row)}\n" for row in rows), "x.jsonl")
    assert sentences(lines) == BY_SENTENCE
    for ending in ("tsv", "txt"):
        tabs = written(tmp_path, BY_WORD.replace(",", "\t"), f"x.{ending}")
        assert (form_of(tabs), sentences(tabs)) == ("words", BY_SENTENCE)
    frame = pytest.importorskip("pandas").read_csv(path)
    assert sentences(frame) == BY_SENTENCE


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("1,e,_,O\n", r"x.csv:6: a sentence whose rows do not follow each other \(1\)"),
        (",,_,O\n", r"x.csv:4: a row of a sentence without a value \(Word\)"),
        ("2,e,_\n", "x.csv:4: wrong number of columns"),
    ],
)
def test_what_is_wrong_with_a_word_a_row_is_told_or_the_sentence_left_out(tmp_path, row, told):
    path = written(tmp_path, BY_WORD + row, "x.csv")
    with pytest.raises(DataError, match=told):
        open_sentences(path)
    assert len(open_sentences(path, bad_rows="skip")) == (2 if row.startswith("1") else 1)


def test_a_sentence_beside_its_tags_is_no_word(tmp_path):
    path = written(tmp_path, "sentence,tags\na dog,D N\n", "x.csv")
    assert sentences(path) == [(["a", "dog"], ["D", "N"])]


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ((["a", "b"], ["X"]), "not one tag for each word"),
        (([], []), "an empty sentence"),
        ((["a", ""], ["X", "Y"]), "an empty word"),
        ((["a\tb"], ["X"]), "a tab or line break inside a word"),
        ((["a", 3], ["X", "Y"]), "lists of texts"),
        ("a b", "not a pair of words and tags"),
    ],
)
def test_examples_from_python_are_checked(example, told):
    with pytest.raises(DataError, match=f"train sentences:2: .*{told}"):
        open_sentences([("fine", "X"), example])


@pytest.mark.parametrize(
    "kind", ["conll", "tsv", "word a row", "dictionaries", "corpus", "python", "held out"]
)
def test_data_can_be_opened_again_from_their_description(tmp_path, kind):
    data = {
        "conll": written(tmp_path, "a O\nb X\n\nc O\n"),
        "tsv": written(tmp_path, "a b\tO X\nc\tO\n", "x.tsv"),
        "word a row": written(tmp_path, BY_WORD, "w.csv"),
        "dictionaries": [{"sentence_id": m or "1", "word": w, "tag": t} for m, w, t in WORDS],
        "corpus": "names",
        "python": [("a b", "O X"), (["c"], ["O"])],
        "held out": written(tmp_path, "a O\n\nb O\n\nc X\n", "h.conll"),
    }[kind]
    valid = None if kind in ("corpus", "held out") else data
    train, dev = TAGGED_READER.training(data, valid, Split("rows", seed=1), spill=tmp_path / "spill")
    descriptions = {"train": train.describe(), "valid": dev.describe()}
    again = TAGGED_READER.reopen(descriptions, tmp_path / "spill")
    assert [list(part) for part in again] == [list(train), list(dev)]


def test_data_that_changed_are_refused(tmp_path):
    path = written(tmp_path, "a O\nb X\n\n")
    train, dev = TAGGED_READER.training(path, path, Split("rows", seed=1))
    descriptions = {"train": train.describe(), "valid": dev.describe()}
    written(tmp_path, "a O\nb Y\n\n")
    with pytest.raises(DataError, match="has changed since the run began"):
        TAGGED_READER.reopen(descriptions)
