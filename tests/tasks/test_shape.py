"""Every task has the same rooms: seven parts with the same names."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import anaphora
from anaphora.tasks.registry import TASKS, estimator

SHAPE = {"info", "build", "objective", "inference", "metrics", "probing", "estimator"}


@pytest.mark.parametrize("command", sorted(TASKS))
def test_a_task_has_seven_parts_and_nothing_else(command: str) -> None:
    folder = Path(anaphora.__file__).parent / "tasks" / command
    parts = {file.stem for file in folder.iterdir() if file.name not in ("__init__.py", "__pycache__")}
    assert parts == SHAPE


@pytest.mark.parametrize("command", sorted(TASKS))
def test_what_the_command_line_prints_lives_in_cli(command: str) -> None:
    """Tasks return values; `cli.answering` has a module for each that makes text and JSON of them."""
    answering = importlib.import_module(f"anaphora.cli.answering.{command}")
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


def test_the_task_that_the_guide_walks_through_is_short() -> None:
    folder = Path(anaphora.__file__).parent / "tasks" / "embed"
    lines = [line for file in folder.glob("*.py") for line in file.read_text(encoding="utf-8").splitlines()]
    assert sum(bool(line.strip()) for line in lines) <= 400
