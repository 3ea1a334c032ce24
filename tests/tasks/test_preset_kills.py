"""C1: kill -9 at random moments in runs of fourteen presets of all tasks; each ends with the bytes of an undisturbed run.

``ANAPHORA_KILLS`` is how many, 200 by default (20 on a GPU).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KILLER = Path(__file__).with_name("preset_killer.py")


def kill_presets(folder: Path, kills: int, seed: int, device: str, processes: int = 1) -> dict[str, Any]:
    """Kill, each process in its share of the presets."""
    pytest.importorskip("PIL")
    each = str(-(-kills // processes))
    running = [
        subprocess.Popen(
            [sys.executable, str(KILLER), str(folder), each, str(seed), device, str(first), str(processes)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for first in range(processes)
    ]
    report: dict[str, Any] = {"kills": 0, "presets": {}}
    for process in running:
        out, err = process.communicate()
        assert process.returncode == 0, err
        part = json.loads(out.splitlines()[-1])
        report["kills"] += part["kills"]
        report["presets"] |= part["presets"]
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
def test_presets_of_all_tasks_are_killed_on_a_gpu(tmp_path, capsys):
    """Most of the time goes into starting CUDA: five processes of three presets each need a minute."""
    report = kill_presets(tmp_path, int(os.environ.get("ANAPHORA_KILLS", "20")), 7, "cuda", processes=5)
    with capsys.disabled():
        print(f"\n{report}")
