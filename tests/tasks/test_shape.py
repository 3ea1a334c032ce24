"""Every task has the same parts, one without kinds three more rooms, and its measures among the kinds."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import anaphora
from anaphora.tasks.registry import TASKS, estimator

SHAPE = {"info", "build", "objective", "inference", "probing", "estimator"}
MORE = {"forecast": {"measures"}, "language": {"log_probs"}}
"""What goes over data with a model to measure it, some at a time."""


@pytest.mark.parametrize("command", sorted(TASKS))
def test_a_task_has_these_parts_and_nothing_else(command: str) -> None:
    folder = Path(anaphora.__file__).parent / "tasks" / command
    parts = {file.stem for file in folder.iterdir() if file.name not in ("__init__.py", "__pycache__")}
    own = SHAPE - ({"inference"} if hasattr(estimator(command), "session") else set())
    assert parts == own | MORE.get(command, set())


@pytest.mark.parametrize("command", sorted(TASKS))
def test_what_the_command_line_prints_lives_in_cli(command: str) -> None:
    """Tasks return values; `cli.answering` makes text and JSON of them, by the kinds of a task or a module of its own."""
    home = "session" if hasattr(estimator(command), "session") else command
    answering = importlib.import_module(f"anaphora.cli.answering.{home}")
    assert list(inspect.signature(answering.asked).parameters)[1:2] == ["source"]
    assert list(inspect.signature(answering.answering).parameters) == ["model", "options"]
    assert not hasattr(estimator(command), "asked")
    folder = Path(anaphora.__file__).parent / "tasks" / command
    for file in folder.rglob("*.py"):
        called = {
            node.func.id
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert "print" not in called, file


def test_a_task_with_a_session_has_no_room_of_its_own() -> None:
    """Whoever asks goes the same road: nothing of the task is written again where it is asked."""
    root = Path(anaphora.__file__).parent
    for command in sorted(one for one in TASKS if hasattr(estimator(one), "session")):
        assert not (root / "cli" / "answering" / f"{command}.py").exists()
        for room in ("serving/exchange/answers.py", "serving/exchange/types.py", "serving/protocol/tasks.py"):
            assert f'"{command}"' not in (root / room).read_text(encoding="utf-8"), room


def test_the_task_that_the_guide_walks_through_is_short() -> None:
    folder = Path(anaphora.__file__).parent / "tasks" / "embed"
    lines = [line for file in folder.glob("*.py") for line in file.read_text(encoding="utf-8").splitlines()]
    assert sum(bool(line.strip()) for line in lines) <= 400
