"""``demo``, ``study`` and Ctrl-C, on trainings of a few steps."""

from __future__ import annotations

import json
import signal
import time

import pytest

from anaphora.cli import main
from warm_command import popen

TINY = {"steps": 8, "hidden": 8, "embedding": 8, "valid_every": 8, "save_every": 8, "valid_examples": 4}


@pytest.fixture
def small_demo(monkeypatch, small_corpora, tmp_path):
    from anaphora.tasks import demo

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "SETTINGS", {**demo.SETTINGS, **TINY, "warmup": 0, "max_length": 12})
    return tmp_path


def test_the_demo_shows_measured_beside_expected_and_what_to_try_next(small_demo, capsys):
    assert main.run(["demo"]) == 1  # eight steps are too few, and the demo says so
    shown = capsys.readouterr()
    assert "(expected: at least 99 %)" in shown.out
    assert "attention weight" in shown.out
    assert "less than expected" in shown.err
    assert "anaphora predict runs/demo" in shown.err
    assert (small_demo / "runs/demo/alignment.html").is_file()


def test_the_demo_as_data(small_demo, capsys):
    assert main.run(["demo", "-o", "here", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["expected"] == 99.0
    assert facts["passed"] is False
    assert facts["html"] == "here/alignment.html"
    drawn = facts["alignment"]
    assert [len(row) for row in drawn["weights"]] == [len(drawn["source"])] * len(drawn["output"])
    assert all(abs(sum(row) - 1) < 0.01 for row in drawn["weights"])
    assert facts["text"]
    assert "trace" not in facts


def test_a_study_draws_its_curve_and_writes_it(small_corpora, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
    assert main.run(["study", "length", "-o", "out", *options, "--set", "max_length=5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["models"]) == {"lstm", "lstm-attention"}
    assert "<svg" in (tmp_path / found["svg"]).read_text()
    assert (tmp_path / found["html"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["lenght"],
            "lenght is not a study (budget, draw, length, memory, positions, recall, scaling, tracking). Did you mean length?",
        ),
        (["length", "--set", "x"], "must have the form key=value"),
        (["length", "--set", "hiden=3"], "Did you mean hidden?"),
    ],
)
def test_a_study_refuses_in_one_sentence(tmp_path, monkeypatch, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    assert main.run(["study", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_learnt_and_resume_goes_on(tmp_path):
    def start(*order):
        return popen(["-m", "anaphora", *order], cwd=tmp_path)

    journal = tmp_path / "run" / "metrics.jsonl"

    def interrupted_after(lines, *order):
        """Wait for so many lines of metrics.jsonl, press Ctrl-C, and return what was said."""
        process = start(*order)
        begun = time.monotonic()
        while not (journal.is_file() and journal.read_bytes().count(b"\n") >= lines):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() - begun < 300
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=300)[1]
        assert process.returncode == 130, err
        assert "Traceback" not in err
        return err

    (tmp_path / "pairs.tsv").write_text("".join(f"word {i}\t{i} word\n" for i in range(200)))
    order = "train translate pairs.tsv --steps 100000 --hidden 8 --device cpu -o run --set embedding=8 --set log_every=1"
    assert "anaphora resume run" in interrupted_after(3, *order.split())
    before = journal.read_bytes()
    interrupted_after(before.count(b"\n") + 3, "resume", "run")
    assert journal.read_bytes().startswith(before)
