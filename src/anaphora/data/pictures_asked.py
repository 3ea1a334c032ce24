"""Questions about pictures as they are given from Python: with what was said before, and the answers to choose among."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anaphora.data.pictures import Pixels, Size, as_picture, read_picture
from anaphora.data.sources.roles import text_problem
from anaphora.errors import DataError


def given_picture(picture: Any, number: int, size: Size) -> Pixels:
    """The pixels of input ``number``, a path or an array."""
    if isinstance(picture, str | Path):
        return read_picture(picture, size=size)
    return as_picture(picture, f"input {number}", size=size)


class Row(NamedTuple):
    """A question about a picture; rows with the same ``key`` are about the same one."""

    key: Any
    pixels: Pixels
    question: str
    choices: tuple[int, ...] = ()
    """Numbers of the answers to choose among; all of them if none is named."""


def spoken(turns: Sequence[tuple[str, str]], question: str, history: int) -> str:
    """The question after the last ``history`` turns (question, answer) of the dialogue."""
    before = [f"{asked} {answer}" for asked, answer in turns[len(turns) - min(history, len(turns)) :]]
    return " ".join([*before, question])


def rows_of(inputs: Iterable[Any], size: Size, answers: Sequence[str], history: int = 0) -> list[Row]:
    """Pairs ``(picture, question)`` or triples ``(picture, question, choices)`` from Python; a picture that is given again
    is read once. A question may also be a dialogue: a list that ends with it, after (question, answer) pairs."""
    if isinstance(inputs, str | Path):
        raise DataError("predict takes a list of pairs (picture, question): write [(picture, question)].")
    rows: list[Row] = []
    seen: dict[Any, Pixels] = {}
    held = list(inputs)  # so that no array is freed and its identity given to another
    for number, given in enumerate(held, start=1):
        where = f"input {number}"
        if not isinstance(given, tuple | list) or len(given) not in (2, 3):
            raise DataError(f"{where} is not a pair of a picture and a question; give (picture, question).")
        picture, question, *rest = given
        if isinstance(question, list | tuple):
            question = _dialogue(question, history, where)
        if not isinstance(question, str):
            raise DataError(f"{where} is not a pair of a picture and a question; give (picture, question).")
        if problem := text_problem(question):
            raise DataError(f"{where} has {problem} for a question; ask something.")
        named = isinstance(picture, str | Path)
        key = str(picture) if named else id(picture)
        if key not in seen:
            seen[key] = given_picture(picture, number, size)
        try:
            choices = listed_choices(rest[0], answers) if rest else ()
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        rows.append(Row(key, seen[key], question, choices))
    return rows


def _dialogue(given: Sequence[Any], history: int, where: str) -> str:
    """``[(question, answer), …, question]`` as it is read."""
    if not history:
        raise DataError(
            f"{where} is a dialogue, but the model was trained on single questions; train with history."
        )
    *turns, last = given if given else ("",)
    pairs = [turn for turn in turns if isinstance(turn, tuple | list) and len(turn) == 2]
    if len(pairs) < len(turns) or not isinstance(last, str):
        raise DataError(
            f"{where}: a dialogue is a list of (question, answer) pairs and a question in the end."
        )
    return spoken([(str(question), str(answer)) for question, answer in pairs], last, history)


def listed_choices(given: Any, answers: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the answers that are named: ``a|b|c`` or a list."""
    names = [name.strip() for name in given.split("|")] if isinstance(given, str) else list(given)
    names = [name for name in names if name]
    if len(set(names)) < 2:
        raise DataError("there must be at least two different answers to choose among; write them a|b|c.")
    for name in names:
        if name not in answers:
            raise DataError(
                f"the model has learned no answer {str(name)[:40]!r}; leave it out of the choices."
            )
    return tuple(answers.index(name) for name in names)


def among(scores: Any, choices: Sequence[Sequence[int]]) -> Any:
    """``scores`` ``(rows, answers)`` with −∞ for the answers that a row does not let the model choose."""
    found = scores.copy()
    for number, few in enumerate(choices):
        if few:
            others = np.ones(scores.shape[1], dtype=bool)
            others[list(few)] = False
            found[number, others] = -np.inf
    return found
