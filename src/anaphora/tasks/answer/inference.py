"""Questions about pictures as they are asked of a trained model: from Python, from a list, or from a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from anaphora.data.pictures import Pixels, Size
from anaphora.data.sources.roles import text_problem
from anaphora.errors import DataError
from anaphora.tasks.answer.objective import Asked, Ids
from anaphora.tasks.given import given_picture
from anaphora.tasks.result import Result

if TYPE_CHECKING:
    from anaphora.tasks.answer.estimator import Answerer


@dataclass(frozen=True)
class Answer(Result):
    """An answer and p(answer | question, picture)."""

    answer: str
    probability: float

    def __str__(self) -> str:
        return self.answer


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


class Dialogues:
    """Questions about one picture in order, each answered with those before it and the model's own answers in mind."""

    def __init__(self, model: Answerer):
        self.model = model
        self._turns: dict[Any, list[tuple[str, str]]] = {}

    def scores(self, rows: Sequence[Row]) -> Any:
        """Scores ``(rows, answers)``; what was said before goes on in the next call."""
        history, answers = self.model.settings_.history, self.model.answers_
        if not history:
            return self.model._scores(rows)
        found = np.zeros((len(rows), len(answers)))
        rounds: list[list[int]] = []
        seen: dict[Any, int] = {}
        for number, row in enumerate(rows):
            turn = seen[row.key] = seen.get(row.key, -1) + 1
            rounds += [[]] * (turn == len(rounds))
            rounds[turn] = [*rounds[turn], number]
        for numbers in rounds:  # the first question about each picture, then the second …
            asked = [
                rows[i]._replace(question=spoken(self._turns.get(rows[i].key, []), rows[i].question, history))
                for i in numbers
            ]
            found[numbers] = self.model._scores(asked)
            for i in numbers:
                turns = self._turns.setdefault(rows[i].key, [])
                turns.append((rows[i].question, answers[int(found[i].argmax())]))
        return found


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


def choices_of(rows: Sequence[Sequence[str]], answers: Sequence[str]) -> list[tuple[int, ...]]:
    """The answers to choose among in the fourth column of each row (question, answer, choices)."""
    found = []
    for number, row in enumerate(rows, start=1):
        try:
            found.append(listed_choices(row[2], answers) if len(row) > 2 else ())
        except DataError as error:
            raise DataError(f"question {number} ({row[0][:40]}): {error}") from None
        if not found[-1]:
            raise DataError(
                f"question {number} ({row[0][:40]}) has no choices; write picture⇥question⇥answer⇥a|b|c."
            )
    return found


def among(scores: Any, choices: Sequence[Sequence[int]]) -> Any:
    """``scores`` ``(rows, answers)`` with −∞ for the answers that a row does not let the model choose."""
    found = scores.copy()
    for number, few in enumerate(choices):
        if few:
            others = np.ones(scores.shape[1], dtype=bool)
            others[list(few)] = False
            found[number, others] = -np.inf
    return found


def group(rows: Sequence[Row], questions: Sequence[Ids]) -> tuple[list[Asked], Any]:
    """The rows picture by picture, and for each row its place in that order."""
    by_key: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        by_key.setdefault(row.key, []).append(number)
    asked = [Asked(rows[of[0]].pixels, [questions[i] for i in of]) for of in by_key.values()]
    order = [number for of in by_key.values() for number in of]
    places = np.empty(len(rows), dtype=np.int64)
    places[order] = np.arange(len(rows))
    return asked, places
