"""How good answers are, by the kind of the question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anaphora.kinds.measures.judged import Judged, share_right

KINDS = 20
"""Most kinds of questions that are kept apart."""


def by_kind(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> dict[str, dict[str, float]]:
    """Accuracy in percent and number of questions for each kind: the third text of a row where it has one, else the
    question's first two words; the commonest kinds, the others together."""
    kinds = [row[2] if len(row) > 2 and row[2].strip() else " ".join(row[0].split()[:2]) for row in rows]
    common = [kind for kind, _ in Counter(kinds).most_common(KINDS)]
    named = [kind if kind in common else "other" for kind in kinds]
    return {
        kind: {
            "accuracy": 100.0
            * float(np.mean([so for name, so in zip(named, right, strict=True) if name == kind])),
            "questions": named.count(kind),
        }
        for kind in dict.fromkeys([*common, *named])
    }


def answers_judged(
    pictures: Sequence[Sequence[Sequence[str]]],
    chances: NDArray[np.float64],
    answers: Sequence[str],
    seconds: float,
) -> Judged:
    """Accuracy; ``chances`` (questions, answers). Questions about one picture are drawn together."""
    rows = [row for about in pictures for row in about]
    place = {answer: number for number, answer in enumerate(answers)}
    outputs = [answers[int(best)] for best in chances.argmax(1)]
    right = [output == row[1] for output, row in zip(outputs, rows, strict=True)]
    wanted = [chances[i, place[row[1]]] if row[1] in place else 0.0 for i, row in enumerate(rows)]
    return Judged(
        [f"picture {number}: {row[0]}" for number, about in enumerate(pictures, start=1) for row in about],
        [row[1] for row in rows],
        outputs,
        1.0 - np.array(wanted),
        [share_right("accuracy", right)],
        seconds,
        groups=np.repeat(np.arange(len(pictures)), [len(about) for about in pictures]),
    )
