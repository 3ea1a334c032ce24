"""C1: kill -9 at random moments, some inside a save; the end is byte for byte that of an undisturbed run.

Half of the processes write their checkpoints in the background.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warm_command import run

KILLER = Path(__file__).with_name("training_killer.py")


def kill_often(folder: Path, kills: int, seed: int) -> dict[str, object]:
    process = run([str(KILLER), str(folder), str(kills), str(seed)])
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_a_run_killed_15_times_ends_the_same(tmp_path):
    report = kill_often(tmp_path, 15, seed=7)
    assert report["kills"] >= 15
    assert len(report["steps"]) >= 4  # it really was killed at different places


@pytest.mark.slow
def test_a_run_killed_200_times_ends_the_same(tmp_path):
    assert kill_often(tmp_path, 200, seed=11)["kills"] >= 200
