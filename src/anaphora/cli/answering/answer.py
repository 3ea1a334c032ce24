"""Answers to questions about pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.cli.answering.response import Response
from anaphora.data.asked import list_lines
from anaphora.data.files import beside
from anaphora.data.pictures import Size, read_picture
from anaphora.data.pictures_readers import ROOMS
from anaphora.data.sources.roles import QUESTIONS
from anaphora.errors import DataError
from anaphora.settings import build
from anaphora.tasks.answer.estimator import Answerer
from anaphora.tasks.answer.inference import Dialogues, Row, listed_choices
from anaphora.tasks.answer.info import AnswerOptions
from anaphora.tasks.bulk.windows import Item
from anaphora.tasks.bulk.worker import Answer, Asked

TOGETHER = 64
LEFT_OUT = "{bad} of {of} rows could not be answered; their lines are empty"


def in_order(model: Answerer) -> bool:
    """Whether an answer may depend on those before it: in a dialogue."""
    return bool(model.settings_.history)


def asked(model: Answerer, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """The rows ``path⇥question`` of a list; further columns do not matter. With ``choices`` the third column lists the answers
    to choose among."""
    for lines in list_lines(source, QUESTIONS[:2], model.recipe_.trained_on):
        yield [Item((line, source)) for line in lines]


def answering(model: Answerer, options: Mapping[str, Any]) -> Answer:
    """The answer to each row; an empty line stays empty. With ``top`` above 1 each answer is a line
    ``number⇥probability⇥answer``."""
    chosen = build(AnswerOptions, dict(options), owner="predict")
    listed = model.answers_ if chosen.choices else None
    dialogues = Dialogues(model)

    def answer(asked: Asked) -> Iterator[Response]:
        read: list[Row | str] = []
        problem = ""
        for number, (line, source) in asked:
            folder = Path() if source == "-" else Path(source).parent
            try:
                read.append(_row(line, folder, model.size, listed) if line.strip() else "")
            except DataError as error:
                problem = f"{'standard input' if source == '-' else source}:{number}: {error}"
                if chosen.bad_rows == "strict":
                    break
                read.append(problem)
        yield from _answered(dialogues, read, asked, chosen)
        if len(read) < len(asked):
            raise DataError(problem)

    return answer


def _answered(
    dialogues: Dialogues, read: list[Row | str], asked: Asked, options: AnswerOptions
) -> Iterator[Response]:
    """A response for each line that was read."""
    rows, model = [row for row in read if isinstance(row, Row)], dialogues.model
    scores = dialogues.scores(rows) if rows else np.zeros((0, 1))
    shares = iter(np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)))
    for row, (number, (line, _)) in zip(read, asked, strict=False):
        head: dict[str, Any] = {"line": number}
        if isinstance(row, str):
            problem = {"error": row} if row else {}
            yield Response("", {**head, "input": line, "output": None, **problem})
            continue
        p = next(shares)
        most = min(options.top, len(row.choices) or options.top)
        best = np.argsort(-p, kind="stable")[:most].tolist()
        names = model.answers_
        top = [{"answer": names[i], "probability": float(p[i])} for i in best]
        record = {**head, "picture": line.split("\t")[0], "question": row.question}
        text = names[best[0]]
        if options.top > 1:
            text = "\n".join(f"{number}\t{p[i]:.4f}\t{names[i]}" for i in best)
        yield Response(
            text, {**record, "output": names[best[0]], "probability": float(p[best[0]]), "top": top}
        )


def _row(line: str, folder: Path, size: Size, answers: Sequence[str] | None) -> Row:
    name, *rest = line.split("\t")
    if not rest or not rest[0].strip() or not name.strip():
        raise DataError("a row needs a picture and a question; write path⇥question.")
    choices: tuple[int, ...] = ()
    if answers is not None:
        if len(rest) < 2:
            raise DataError("a row needs its choices; write path⇥question⇥a|b|c.")
        choices = listed_choices(rest[1], answers)
    return Row(name, read_picture(beside(folder, name, ROOMS), size=size), rest[0], choices)
