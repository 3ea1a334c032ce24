"""A run folder of every released format, checkpoints included, still verifies, loads and can be resumed.

``golden_runs/format-1`` was written by 0.1.0 with
``an.Classifier("lstm", steps=4, valid_every=2, save_every=2, log_every=2, keep=2, device="cpu", hidden=2, embedding=2,
dropout=0.0, batch_tokens=64).fit("parity", out=…)``. A kept run is never written again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import anaphora as an
from anaphora.tasks.verify import verify_run
from anaphora.training.checkpoint import FORMAT, CheckpointFolder
from anaphora.training.journal import read_journal

RUNS = sorted(path for path in (Path(__file__).with_name("golden_runs")).iterdir() if path.is_dir())


def test_there_is_a_run_of_every_format():
    assert [path.name for path in RUNS] == [f"format-{number}" for number in range(1, FORMAT + 1)]


@pytest.mark.parametrize("kept", RUNS, ids=lambda path: path.name)
def test_a_run_of_a_released_format_verifies_and_goes_on(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "run")
    findings = verify_run(tmp_path / "run")
    assert all(finding.fine for finding in findings), findings
    assert len(findings) == 9  # config, learnt, tokenizer, weights, two checkpoints, three journals
    assert set(an.load(tmp_path / "run", device="cpu").predict(["0 1", "1 1 1"])) <= {"even", "odd"}
    model = an.Classifier.resume(tmp_path / "run", steps=6)
    assert model.result_.steps == 6
    assert CheckpointFolder(tmp_path / "run" / "checkpoints").newest()[0].step == 6
    steps = [line["step"] for line in read_journal(tmp_path / "run" / "metrics.jsonl") if "loss" in line]
    assert steps == [2, 4, 6]
