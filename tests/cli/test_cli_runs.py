"""The commands that take a run, on a real one: tiny, but written by ``train`` itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import warm_command
from anaphora.cli import main

TINY = "--steps 12 --hidden 16 --device cpu --set embedding=8 --set valid_every=6 --set save_every=6 --set tokens=char"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    pairs = "".join(f"{a} {b}\t{b} {a}\n" for a in "abcdefgh" for b in "abcdefgh")
    (folder / "train.tsv").write_text(pairs)
    (folder / "dev.tsv").write_text(pairs[:64])
    run = folder / "run"
    order = f"train translate {folder}/train.tsv --valid {folder}/dev.tsv {TINY} -o {run} --json"
    done = warm_command.run(["-m", "anaphora", *order.split()])
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["steps"] == 12
    assert document["stopped"] == "finished"
    assert "step" in done.stderr
    assert "\x1b" not in done.stderr
    return run


@pytest.fixture
def run(trained, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    return copy


def test_predict_from_a_file_and_from_a_pipe_agree(trained, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("a b\n\nc d\n")
    assert main.run(["predict", str(trained), str(tmp_path / "in.txt"), "--beam", "1"]) == 0
    from_file = capsys.readouterr().out
    assert from_file.count("\n") == 3
    done = warm_command.run(["-m", "anaphora", "predict", str(trained), "--beam", "1"], "a b\n\nc d\n")
    assert done.stdout == from_file
    assert not [line for line in done.stderr.splitlines() if "no C compiler" not in line]


def test_score(trained, capsys):
    data = str(trained.parent / "dev.tsv")
    assert main.run(["score", str(trained), data, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert {"chrf", "chrf_signature", "exact_match", "examples"} <= scores.keys()
    assert "bleu" not in scores  # the references have one word each
    assert "nrefs:1" in scores["chrf_signature"]
    assert main.run(["score", str(trained), data]) == 0
    assert "exact_match" in capsys.readouterr().out


def test_verify_tells_whole_from_damaged(run, capsys):
    assert main.run(["verify", str(run)]) == 0
    assert "files are whole." in capsys.readouterr().out
    weights = run / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-5] ^= 1
    weights.write_bytes(raw)
    assert main.run(["verify", str(run), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["whole"] is False
    assert [f["file"] for f in document["files"] if not f["fine"]] == ["model.safetensors"]
    assert main.run(["predict", str(run), str(run / "README.md")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "model.safetensors" in shown.err


def test_resume_of_a_finished_run_says_the_same(run, capsys):
    before = (run / "metrics.jsonl").read_bytes(), (run / "model.safetensors").read_bytes()
    assert main.run(["resume", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 12
    assert ((run / "metrics.jsonl").read_bytes(), (run / "model.safetensors").read_bytes()) == before


def test_a_run_is_not_overwritten_unasked(run, capsys):
    before = (run / "model.safetensors").read_bytes()
    data = str(run.parent / "x.tsv")
    Path(data).write_text("a\tb\nc\td\ne\tf\n")
    assert main.run(["train", "translate", data, "-o", str(run), *TINY.split()]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert (run / "model.safetensors").read_bytes() == before


def test_a_dry_run_tells_of_held_out_data_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("".join(f"text {i}\tt {i}\n" for i in range(60)))
    assert main.run(["train", "translate", "a.tsv", "--dry-run", *TINY.split()]) == 0
    shown = capsys.readouterr()
    assert "held out 3 of 60 rows as dev data" in shown.err
    assert shown.out.count("a.tsv") == 1
    assert "3 rows; held out of the training data" in shown.out
    assert "sha256" not in shown.out


def test_a_dry_run_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main.run(["train", "translate", "copy", "--dry-run", *TINY.split()]) == 0
    assert "parameters" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert main.run(["train", "translate", "copy", "--dry-run", "--json", *TINY.split()]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] > 0


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "empty"), (b"no tab here\n", ":1"), (b"\x00\xff\xfe\x80\t\x81\n" * 9, "a binary file")],
)
def test_files_that_are_no_pairs(tmp_path, capsys, content, told):
    path = tmp_path / "data.tsv"
    path.write_bytes(content)
    assert main.run(["train", "translate", str(path), "-o", str(tmp_path / "r"), *TINY.split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert str(path) in shown.err
    assert told in shown.err


@pytest.mark.parametrize(
    "order", ["predict {}", "resume {}", "verify {}", "score {} copy", "inspect {} --text a"]
)
def test_what_is_not_a_run(tmp_path, capsys, monkeypatch, order):
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    assert main.run(order.format(tmp_path / "none").split()) == 2
    assert "none" in capsys.readouterr().err
    (tmp_path / "file").write_text("x")
    assert main.run(order.format(tmp_path / "file").split()) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_inspect_draws_in_the_terminal_and_into_files(trained, tmp_path, capsys):
    order = ["inspect", str(trained), "--view", "alignment", "--text", "a b"]
    assert main.run(order) == 0
    drawn = capsys.readouterr()
    assert len(drawn.out.splitlines()) > 3
    assert "\x1b" not in drawn.out
    files = {kind: str(tmp_path / f"look.{kind}") for kind in ("html", "svg", "png")}
    options = [word for kind, name in files.items() for word in (f"--{kind}", name)]
    assert main.run([*order, *options, "--target", "b a"]) == 0
    assert capsys.readouterr().out == ""
    assert Path(files["html"]).read_text().lower().startswith("<!doctype html>")
    assert "<svg" in Path(files["svg"]).read_text()
    assert Path(files["png"]).read_bytes().startswith(b"\x89PNG")
    assert main.run([*order, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = document["arrays"]["alignment"]["values"]
    assert all(abs(sum(row) - 1) < 1e-4 for row in rows)


def test_inspect_shows_which_symbols_are_alike(trained, tmp_path, capsys):
    order = ["inspect", str(trained), "--view", "embeddings"]
    assert main.run([*order, "--svg", str(tmp_path / "symbols.svg")]) == 0
    assert "<svg" in (tmp_path / "symbols.svg").read_text()
    assert main.run([*order, "--json"]) == 0
    assert "embeddings" in json.loads(capsys.readouterr().out)["arrays"]


@pytest.mark.parametrize(
    "order",
    [
        "predict RUN in.txt --beam 1 -o",
        "export RUN --to word2vec -o",
        "inspect RUN --view alignment --text a --svg",
        "synthesize RUN in.txt --beam 1 -o",
        "corpora numbers --size 3 --write",
    ],
)
def test_missing_folders_above_a_file_are_made(trained, tmp_path, monkeypatch, order):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("a b\nc d\n")
    assert main.run([*order.replace("RUN", str(trained)).split(), "new/place/file"]) == 0
    assert [path.name for path in Path("new/place").iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--view", "alignmnt", "--text", "a"], "There is no view 'alignmnt'; did you mean alignment?"),
        (["--text", "  "], "--text is empty"),
        (["--text", "a", "--html", "/"], "--html / is a folder"),
        (["--text", "a", "--svg", f"{__file__}/where.svg"], "test_cli_runs.py is not a folder"),
        (["--view", "alignment"], "--text"),
        (["--view", "embeddings", "--text", "a"], "shows many vectors and takes no --text"),
        (["--view", "length"], "`anaphora study length` makes them"),
    ],
)
def test_inspect_refuses_in_one_sentence(trained, capsys, options, told):
    assert main.run(["inspect", str(trained), *options]) == 2
    assert told in capsys.readouterr().err


def test_resuming_a_finished_run_claims_no_training(run, capsys):
    assert main.run(["resume", str(run)]) == 0
    said = capsys.readouterr().err
    assert "nothing is left to train" in said
    assert "Trained for" not in said


def test_without_a_view_one_is_chosen_that_can_be_drawn(run, capsys):
    assert main.run(["inspect", str(run)]) == 0
    said = "Showing curves; --view NAME chooses another: samples, health; --list names all that this run has."
    assert said in capsys.readouterr().err
    assert main.run(["inspect", str(run), "--text", "a b"]) == 0
    shown = capsys.readouterr()
    offered = shown.err.partition("Showing alignment; --view NAME chooses another: ")[2].partition(";")[0]
    for name in offered.split(", "):  # newcomer 21: none that it refuses
        assert main.run(["inspect", str(run), "--text", "a b", "--view", name]) == 0, name
    assert {"states", "trajectory", "beam"} <= set(offered.split(", "))
    assert "Alignment" in shown.out


def test_the_views_of_a_run_are_listed_with_reasons(run, capsys):
    assert main.run(["inspect", str(run), "--list", "--json"]) == 0
    views = json.loads(capsys.readouterr().out)["views"]
    assert {name for name, reason in views.items() if reason is None} >= {
        "alignment",
        "curves",
        "states",
        "embeddings",
    }
    assert "no CTC outputs" in views["ctc"]
    assert views["gradients"] is None
    assert views["length"] == "`anaphora study length` draws it"
    assert main.run(["inspect", str(run), "--list"]) == 0
    can, _, cannot = capsys.readouterr().out.partition("Not of this model:")
    assert "alignment" in can
    assert "kalman" in cannot


def test_a_model_without_states_is_shown_by_what_its_answer_rests_on(tmp_path, capsys):
    rows = "".join(
        f"{word} film\t{label}\n" for word, label in (("good", "pos"), ("bad", "neg")) for _ in range(6)
    )
    (tmp_path / "train.tsv").write_text(rows)
    order = f"train classify {tmp_path}/train.tsv --model ngrams -o {tmp_path}/run"
    assert main.run(order.split()) == 0
    capsys.readouterr()
    assert main.run(["inspect", f"{tmp_path}/run", "--text", "good film"]) == 0
    assert "Showing attribution; --list names all" in capsys.readouterr().err
