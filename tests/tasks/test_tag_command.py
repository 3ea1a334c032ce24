"""``anaphora train tag``, ``predict`` and ``score`` on files: the same columns out, one sentence for what is wrong."""

from __future__ import annotations

import json
import sys

import pytest

import anaphora as an
from anaphora.cli import main

CONLL = """\
-DOCSTART- -X- O

Teddy NNP B-PER
Roosevelt NNP I-PER
ran VBD O

# note
dogs NNS O
ran VBD O
"""
CONLLU = """\
# sent_id = 1
# text = dogs can't run
1\tdogs\tdog\t_\tNNS\t_\t_\t_\t_\t_
2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\tx
2\tcan\tcan\t_\tMD\t_\t_\t_\t_\t_
3\tn't\tnot\t_\tRB\t_\t_\t_\t_\t_
4\trun\trun\t_\tVB\t_\t_\t_\t_\t_

# sent_id = 2
1\tdogs\tdog\t_\tNNS\t_\t_\t_\t_\t_
2\trun\trun\t_\tVBP\t_\t_\t_\t_\t_
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.conll").write_text((CONLL + "\n") * 3)
    tagged = CONLLU.replace("dog\t_", "dog\tNOUN").replace("run\t_", "run\tVERB")
    tagged = tagged.replace("can\t_", "can\tAUX").replace("not\t_", "not\tPART")
    (tmp_path / "train.conllu").write_text((tagged + "\n") * 3)
    return tmp_path


def run(capsys, *words):
    code = main.run(list(words))
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out, said.err


def test_columns_in_the_same_columns_out(here, capsys):
    assert run(capsys, "train", "tag", "train.conll", "--model", "hmm", "-o", "run")[0] == 0
    (here / "new.conll").write_text(CONLL.replace(" B-PER", " O").replace(" I-PER", " O"))
    assert run(capsys, "predict", "run", "new.conll")[1] == CONLL
    (here / "bare.conll").write_text("Teddy NNP\nRoosevelt NNP\n\ndogs NNS\n")
    assert (
        run(capsys, "predict", "run", "bare.conll")[1]
        == "Teddy NNP B-PER\nRoosevelt NNP I-PER\n\ndogs NNS O\n"
    )
    code, out, _ = run(capsys, "score", "run", "train.conll", "--json")
    assert json.loads(out)["f1"] == 100
    assert json.loads(out)["by_type"]["PER"]["support"] == 3
    assert code == 0


@pytest.mark.parametrize(("name", "between"), [("words.csv", ","), ("words.tsv", "\t")])
def test_a_table_with_a_word_a_row_gets_a_tag_in_every_row(here, capsys, name, between):
    head, *rows = [
        row.replace(",", between)
        for row in ("sentence_id,word,tag", "1,Teddy,B PER", "1,Roosevelt,I PER", "2,dogs,O")
    ]
    (here / name).write_text("\n".join([head, *rows, ""]))
    assert run(capsys, "train", "tag", name, "--valid", name, "--model", "hmm", "-o", "run")[0] == 0
    expected = [f"{head}{between}prediction", *(f"{row}{between}{row.split(between)[2]}" for row in rows)]
    assert run(capsys, "predict", "run", name)[1].splitlines() == expected
    assert json.loads(run(capsys, "score", "run", name, "--json")[1])["accuracy"] == 100
    (here / name).write_text(f"{head}\n1{between}{between}O\n")
    code, out, err = run(capsys, "predict", "run", name)
    assert (code, out) == (2, "")
    assert f"{name}:2: a row of a sentence without a value (word)" in err


@pytest.mark.parametrize(
    "rows", ["id,words,pos,ner\n1,dogs run,N V,O O\n", "sid,word,pos,ner\n1,dogs,N,O\n1,run,V,O\n"]
)
def test_a_table_is_scored_by_the_columns_of_training(here, capsys, rows):
    (here / "a.csv").write_text(rows)
    fields = ("--source-field", rows.split(",")[1], "--target-field", "pos")
    words = ("train", "tag", "a.csv", "--valid", "a.csv", *fields, "--model", "hmm", "-o", "run")
    assert run(capsys, *words)[0] == 0
    code, out, err = run(capsys, "score", "run", "a.csv", "--json")
    assert code == 0, err
    assert json.loads(out)["accuracy"] == 100


def test_conllu_keeps_comments_ranges_and_other_columns(here, capsys):
    assert run(capsys, "train", "tag", "train.conllu", "--model", "hmm", "-o", "run")[0] == 0
    (here / "new.conllu").write_text(CONLLU)
    expected = (here / "train.conllu").read_text()[: len(CONLLU) + 40].rsplit("\n\n", 1)[0]
    out = run(capsys, "predict", "run", "new.conllu")[1]
    assert out.rstrip("\n") == expected.rstrip("\n")
    assert "2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\tx" in out
    first = json.loads(run(capsys, "predict", "run", "new.conllu", "--json")[1].splitlines()[0])
    assert first["tokens"] == ["dogs", "can", "n't", "run"]
    assert first["tags"] == ["NOUN", "AUX", "PART", "VERB"]
    assert first["line"] == 3
    assert all(0.5 < p <= 1 for p in first["probabilities"])


def test_another_column_may_be_learnt_and_is_remembered(here, capsys):
    order = ["train", "tag", "train.conllu", "--model", "hmm", "--target-field", "xpos", "-o", "run"]
    assert run(capsys, *order)[0] == 0
    scores = json.loads(run(capsys, "score", "run", "train.conllu", "--json")[1])
    assert set(scores["by_type"]) == {"NNS", "MD", "RB", "VB", "VBP"}
    out = run(capsys, "predict", "run", "train.conllu")[1]
    assert "1\tdogs\tdog\tNOUN\tNNS" in out
    elsewhere = run(capsys, "predict", "run", "train.conllu", "--set", "target_field=misc")[1]
    assert "1\tdogs\tdog\tNOUN\tNNS\t_\t_\t_\t_\tNNS" in elsewhere


def test_lines_of_words_get_their_tags_beside_them(here, capsys, monkeypatch):
    an.Tagger("hmm").fit("train.conll", out="run")
    (here / "new.txt").write_text("Teddy Roosevelt ran\n\ndogs ran\n")
    assert (
        run(capsys, "predict", "run", "new.txt")[1] == "Teddy/B-PER Roosevelt/I-PER ran/O\n\ndogs/O ran/O\n"
    )
    (here / "pairs.tsv").write_text("dogs ran\tO O\n")
    assert run(capsys, "predict", "run", "pairs.tsv")[1] == "dogs/O ran/O\n"
    with (here / "new.txt").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert run(capsys, "predict", "run")[1].startswith("Teddy/B-PER")
    with (here / "train.conll").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert run(capsys, "predict", "run", "--set", "form=conll")[1] == (CONLL + "\n") * 3


def test_a_text_file_with_tags_in_its_last_column_is_read_as_columns(here, capsys):
    an.Tagger("hmm").fit("train.conll", out="run")
    code, out, err = run(
        capsys, "predict", "run", write(here / "more.txt", "Teddy NNP O\nran VBD O\n\ndogs NNS O\n")
    )
    assert (code, out) == (0, "Teddy NNP B-PER\nran VBD O\n\ndogs NNS O\n")
    assert "more.txt: read as columns, a word and its tag on each line." in err
    # three words on each line, of which few are tags: sentences
    assert (
        run(capsys, "predict", "run", write(here / "said.txt", "dogs ran ran\ndogs ran O\n"))[1].count("/")
        == 6
    )
    assert run(capsys, "predict", "run", write(here / "one.txt", "dogs O\n"))[1] == "dogs/O O/O\n"


def write(path, text):
    path.write_text(text)
    return path.name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a O\nb\n", "bad.conll:2: wrong number of columns"),
        ("a\n\nb\n", "bad.conll:1: only one column, so no tag"),
        ("a O\n\nb O\n", "all training words have the tag O"),
        ("", "bad.conll is empty"),
        ("\n\n", "no usable row"),
    ],
)
def test_bad_files_are_told_in_one_sentence(here, capsys, text, told):
    (here / "bad.conll").write_text(text)
    code, out, err = run(capsys, "train", "tag", "bad.conll", "--model", "hmm", "-o", "run")
    assert (code, out) == (2, "")
    sentences = [line for line in err.strip().splitlines() if not line.startswith("held out ")]
    assert len(sentences) == 1
    assert told in sentences[0]
    assert not (here / "run").exists()


def test_mistakes_at_prediction_are_told_in_one_sentence(here, capsys):
    an.Tagger("hmm").fit("train.conll", out="run")
    (here / "bad.conll").write_text("a O\n")
    for words, told in (
        (["run", "bad.conll", "--set", "source_field=9"], "bad.conll has no column 9"),
        (["run", "bad.conll", "--set", "form=xml"], "form = 'xml' cannot be used"),
        (["run", "none.conll"], "none.conll: there is no such file"),
        (["run", "bad.conll", "--beam", "3"], "beam is not a setting"),
    ):
        code, _, err = run(capsys, "predict", *words)
        assert code == 2
        assert told in err
        assert len(err.strip().splitlines()) == 1
