"""Every task has the same rooms: seven parts with the same names."""

from __future__ import annotations

from pathlib import Path

import pytest

import anaphora
from anaphora.tasks.registry import TASKS

SHAPE = {"info", "build", "objective", "inference", "metrics", "probing", "estimator"}


@pytest.mark.parametrize("command", sorted(TASKS))
def test_a_task_has_seven_parts_and_nothing_else(command: str) -> None:
    folder = Path(anaphora.__file__).parent / "tasks" / command
    parts = {file.stem for file in folder.iterdir() if file.name not in ("__init__.py", "__pycache__")}
    assert parts == SHAPE
