"""``train embed``, ``predict``, ``search``, ``cluster``, ``score`` and ``inspect`` of an embedder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from anaphora.cli.main import run as command

sys.path.insert(0, str(Path(__file__).parent.parent / "tasks"))
from classify_tiny import waves
from embed_tiny import pairs, tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("embed")
    rows = pairs(60)
    (place / "pairs.tsv").write_text("".join(f"{x}\t{y}\n" for x, y in rows))
    (place / "texts.txt").write_text("a b c\n\nd e\nf g h a\n")
    sizes = [
        "tokens=word",
        "vector_size=8",
        "embedding=10",
        "batch_tokens=200",
        "valid_every=10",
        "device=cpu",
    ]
    given = [word for one in sizes for word in ("--set", one)]
    told = command(
        [
            "train",
            "embed",
            str(place / "pairs.tsv"),
            "--model",
            "bow",
            "--steps",
            "20",
            *given,
            "-o",
            str(place / "run"),
        ]
    )
    assert told == 0
    return place


def test_vectors_as_text_json_and_npy(folder, capsys):
    run, texts = str(folder / "run"), str(folder / "texts.txt")
    assert command(["predict", run, texts]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert [len(line.split()) for line in lines] == [8, 0, 8, 8, 0]
    assert command(["predict", run, texts, "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["input"] for one in records] == ["a b c", "", "d e", "f g h a"]
    assert records[1]["output"] is None
    assert command(["predict", run, texts, "--npy", str(folder / "v.npy")]) == 0
    vectors = np.load(folder / "v.npy")
    assert vectors.shape == (4, 8)
    assert np.allclose(vectors[2], records[2]["output"])
    assert not vectors[1].any()
    assert "Wrote 4 vectors" in capsys.readouterr().err


def test_search_and_cluster(folder, capsys):
    run, texts = str(folder / "run"), str(folder / "texts.txt")
    assert command(["search", run, texts, "--text", "A B C", "--text", "d", "-k", "2"]) == 0
    first, second = capsys.readouterr().out.rstrip("\n").split("\n\n")
    assert [len(block.split("\n")) for block in (first, second)] == [2, 2]
    assert first.split("\n")[0].split("\t")[1] == "a b c"
    (folder / "queries.txt").write_text("D E\n")
    assert command(["search", run, texts, "--queries", str(folder / "queries.txt"), "-k", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["query"] == "D E"
    assert found["found"][0].keys() == {"line", "similarity", "text"}
    assert command(["cluster", run, texts, "-k", "2"]) == 0
    told = capsys.readouterr()
    assert [line.split("\t")[1] for line in told.out.splitlines()] == ["a b c", "d e", "f g h a"]
    assert {line.split("\t")[0] for line in told.out.splitlines()} == {"1", "2"}
    assert "2 clusters of 2, 1" in told.err


def test_score_and_views(folder, capsys):
    run = str(folder / "run")
    assert command(["score", run, str(folder / "pairs.tsv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() >= {"recall_at_1", "mrr", "examples"}
    assert command(["score", run, str(folder / "texts.txt"), "--set", "positives=views", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 3
    assert command(["inspect", run, "--view", "embeddings", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["tokens"]["symbol"]) == 3  # the dev inputs
    assert (
        command(["inspect", run, "--view", "embeddings", "--input", str(folder / "texts.txt"), "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["tokens"]["symbol"] == ["a b c", "d e", "f g h a"]
    assert command(["inspect", run, "--view", "states", "--text", "a b"]) == 2
    assert "keeps no state" in capsys.readouterr().err


def test_series(tmp_path, capsys):
    tiny("bilstm", steps=2).fit(waves(40), valid=waves(8, seed=1), out=tmp_path / "run")
    X = np.random.RandomState(0).randn(5, 4, 2)
    np.save(tmp_path / "x.npy", X)
    run, file = str(tmp_path / "run"), str(tmp_path / "x.npy")
    assert command(["search", run, file, "--queries", file, "-k", "1"]) == 0
    found = [line.split("\t")[1] for line in capsys.readouterr().out.splitlines() if line]
    assert found == ["#1", "#2", "#3", "#4", "#5"]
    assert command(["predict", run, file]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert command(["search", run, file, "--text", "1 2"]) == 2
    assert "embeds sequences of vectors; give them with --queries" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["search", "RUN", "texts.txt"], "give what to look for"),
        (["search", "RUN", "texts.txt", "--text", " "], "is empty; give what to look for"),
        (["search", "RUN", "absent.txt", "--text", "a"], "absent.txt"),
        (["cluster", "RUN", "texts.txt", "-k", "9"], "3 inputs cannot make 9 clusters"),
        (["search", "nowhere", "texts.txt", "--text", "a"], "nowhere does not exist"),
        (["train", "embed", "texts.txt", "--set", "crop=0"], "crop = 0"),
        (
            ["train", "embed", "waves"],
            "waves is a corpus for `train forecast`; for `embed` there are numbers, dates",
        ),
    ],
)
def test_mistakes_are_one_sentence(folder, words, told, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert command(["run" if word == "RUN" else word for word in words]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "Traceback" not in err
