"""Questions about pictures as they are asked of a trained model: from Python, from a list, or from a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anaphora.data.pictures import Row, among, listed_choices, rows_of, spoken
from anaphora.errors import DataError
from anaphora.kinds.result import Result
from anaphora.tasks.answer.objective import Asked, Ids

__all__ = [
    "Answer",
    "Dialogues",
    "Row",
    "among",
    "choices_of",
    "group",
    "listed_choices",
    "rows_of",
    "spoken",
]

if TYPE_CHECKING:
    from anaphora.tasks.answer.estimator import Answerer


@dataclass(frozen=True)
class Answer(Result):
    """An answer and p(answer | question, picture)."""

    answer: str
    probability: float

    def __str__(self) -> str:
        return self.answer


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
