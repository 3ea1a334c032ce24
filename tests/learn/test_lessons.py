"""Every lesson of docs/learn: its form, its code, what it prints, its picture, and the solutions of its exercises."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import pytest
from solutions import SOLUTIONS, WRONG

import anaphora as an
from anaphora.learn.page import SECTIONS, Lesson
from anaphora.learn.pictures import keeping
from printed import same_output
from test_docs import run_shell
from warm_command import commands_folder

LESSONS = an.learn.lessons()
ROOT = Path(__file__).resolve().parents[2]
CURRICULUM = ROOT / "docs" / "reference" / "curriculum.md"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("7 rounds", "7 rounds\n", True),
        ("7 rounds", "8 rounds\n", False),
        ("loss 1.23", "loss 1.24", True),
        ("loss 1.23", "loss 1.33", False),
        ("loss 1.23", "cost 1.23", False),
        ("a 1", "a 1 2", False),
        ("a … 2", "a 1 x 2", True),
        ("a … 2", "a 1 x 3", False),
        ("… 2", "b 2 3", False),
        ("b 2 …", "b 2 3", True),
        ("word…", "words", False),
    ],
)
def test_outputs_are_compared(shown: str, printed: str, same: bool) -> None:
    assert same_output(shown, printed) == same


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda one: one.name)
def test_the_form_of_a_lesson(lesson: Lesson) -> None:
    """A question, then the sections in order; code of at most 20 lines, a picture with its proof, something that fails, own data, exercises."""
    assert tuple(re.findall(r"^## (.+)$", lesson.source, re.MULTILINE)) == SECTIONS
    question = lesson.source.split("## ")[0]
    assert "?" in question
    for block in lesson.blocks():
        if block.kind == "python":
            lines = [line for line in block.text.splitlines() if line.strip()]
            assert len(lines) <= 20 or "## Break it" in lesson.source[: lesson.source.index(block.text)], (
                block.line
            )
    assert ".save(" in lesson.section("The picture")
    assert "assert" in lesson.section("The picture")
    assert "assert" in lesson.section("Break it")
    assert "```bash\n" in lesson.section("On your own data")
    exercises = [f"{lesson.number}.{n}" for n in (1, 2, 3)]
    assert re.findall(r"^\*\*(\d+\.\d)\*\*", lesson.section("Exercises"), re.MULTILINE) == exercises
    for exercise in exercises:
        assert f'an.learn.check("{exercise}", ' in lesson.section("Exercises")


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda one: one.name)
def test_a_lesson_runs(lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claims hold (they are assertions), it prints what the page shows, and its picture is written."""
    kept = (
        ROOT / os.environ["ANAPHORA_LESSON_PICTURES"]
        if "ANAPHORA_LESSON_PICTURES" in os.environ
        else tmp_path
    )
    monkeypatch.chdir(tmp_path)
    with keeping(lesson, kept / lesson.name):
        run_blocks(lesson, tmp_path)
    saved = re.findall(r'\.save\("(.+?\.svg)"\)', lesson.section("The picture"))
    assert saved
    assert all("<svg" in (tmp_path / name).read_text(encoding="utf-8")[:200] for name in saved)


def run_blocks(lesson: Lesson, tmp_path: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__lesson__"}
    for block in lesson.blocks():
        if block.kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * (block.line - 1) + block.text, f"{lesson.name}.md", "exec"), namespace)
            if block.output is not None:
                said = printed.getvalue()
                assert same_output(block.output, said), f"{lesson.name}.md:{block.line} prints\n{said}"
        elif block.kind == "bash":
            run_shell(block.text, tmp_path, commands_folder())


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda one: one.name)
def test_solutions_are_right_and_other_answers_get_hints(lesson: Lesson) -> None:
    for number in (1, 2, 3):
        exercise = f"{lesson.number}.{number}"
        verdict = an.learn.check(exercise, SOLUTIONS[exercise])
        assert verdict, verdict
        assert str(verdict) == f"{exercise}: right."
        for wrong in (*WRONG[exercise], None, "no idea"):
            verdict = an.learn.check(exercise, wrong)
            assert not verdict, f"{exercise}: {wrong!r} passes"
            assert len(verdict.hint) > 20
        assert any("failed with" not in an.learn.check(exercise, wrong).hint for wrong in WRONG[exercise])


def test_rows_are_those_of_the_curriculum() -> None:
    known = re.findall(r"^\| ([A-I]\d*b?) \|", CURRICULUM.read_text(encoding="utf-8"), re.MULTILINE)
    for lesson in LESSONS:
        assert set(lesson.rows) <= set(known), lesson.name
