"""C1: kill -9 at random moments in runs of fourteen presets of all tasks; each ends with the bytes of an undisturbed run.

``ANAPHORA_KILLS`` is how many, 200 by default (20 on a GPU).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLER = Path(__file__).with_name("preset_killer.py")


def kill_presets(folder: Path, kills: int, seed: int, device: str) -> dict[str, object]:
    pytest.importorskip("PIL")
    process = subprocess.run(
        [sys.executable, str(KILLER), str(folder), str(kills), str(seed), device],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout.splitlines()[-1])
    assert report["kills"] >= kills
    return report


@pytest.mark.slow
def test_presets_of_all_tasks_are_killed(tmp_path, capsys):
    kills = int(os.environ.get("ANAPHORA_KILLS", "200"))
    report = kill_presets(tmp_path, kills, 5, "cpu")
    assert kills < 50 or sum(count > 0 for count in report["presets"].values()) >= 12
    with capsys.disabled():
        print(f"\n{report}")


@pytest.mark.cuda
@pytest.mark.slow
def test_presets_of_all_tasks_are_killed_on_a_gpu(tmp_path):
    kill_presets(tmp_path, int(os.environ.get("ANAPHORA_KILLS", "20")), 7, "cuda")
