"""Answers to the exercises: right, or a hint. What is right is computed or tried out; it stands in no page."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.learn.page import lesson

Check = Callable[[Any], str | None]
"""Takes an answer: None where it is right, else a hint."""


@dataclass(frozen=True)
class Verdict:
    """What `check` found of ``exercise``: true where the answer is right; ``hint`` says how to go on where it is not.

    >>> bool(an.learn.check("14.1", "three hundred"))
    False
    """

    exercise: str
    right: bool
    hint: str = ""

    def __bool__(self) -> bool:
        return self.right

    def __str__(self) -> str:
        return f"{self.exercise}: right." if self.right else f"{self.exercise}: not yet. {self.hint}"

    __repr__ = __str__


def check(exercise: str, answer: Any) -> Verdict:
    """Check the answer to an exercise of the lessons.

    Args:
        exercise: the lesson and the number of the exercise in it, such as ``"14.2"``.
        answer: a number, a text, a tensor or a function, as the exercise says.

    Returns a `Verdict`, which is true where the answer is right and else has a ``hint``. An answer that fails when it is tried out
    is wrong, and the hint names the failure. Raises an `AnaphoraError` where there is no such exercise.

    >>> import anaphora as an
    >>> an.learn.check("14.1", 3)
    14.1: not yet. Each round doubles the steps that a pair covers: 1, 2, 4, … How often until it covers all?
    """
    checks, number = _checks(exercise)
    try:
        hint = checks[number - 1](answer)
    except Exception as error:  # whatever the learner's own function or object does
        hint = f"Trying your answer out failed with {type(error).__name__}: {error}"
    return Verdict(exercise, hint is None, hint or "")


def _checks(exercise: str) -> tuple[tuple[Check, ...], int]:
    named = re.fullmatch(r"(\d+)\.([1-3])", exercise)
    if named is None:
        raise AnaphoraError(
            f"{exercise!r} is not an exercise; write it as in '14.2': the lesson, then 1, 2 or 3."
        )
    number = lesson(int(named[1])).number
    module = importlib.import_module(f"anaphora.learn.exercises.lesson{number:02d}")
    return module.CHECKS, int(named[2])


def close(answer: Any, right: float, tolerance: float) -> bool:
    """Whether ``answer`` is a number within ``tolerance`` of ``right``; False for what is no number."""
    try:
        return abs(float(answer) - right) <= tolerance
    except (TypeError, ValueError):
        return False
