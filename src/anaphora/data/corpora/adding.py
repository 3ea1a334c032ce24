"""The adding problem (Hochreiter & Schmidhuber 1997): add the two marked numbers of a long row of numbers.

A sequence has lag + 10 steps, each a pair (number from −1 to 1, mark). Two marks are 1, all others 0: one among
the first ten steps, so that its number must be remembered for at least ``lag`` steps, and one after them. The
answer is 0.5 + (x₁ + x₂)/4, between 0 and 1; it counts as found when the error is below 0.04.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.data.corpora.vector_corpus import VectorCorpus

EARLY = 10


def draw(variant: str, size: int, random: np.random.RandomState) -> list[tuple[Any, str]]:
    """``size`` sequences ``(lag + 10, 2)`` with their answers; numbers have four places, as they are written."""
    steps = int(variant) + EARLY
    numbers = (random.randint(-10_000, 10_001, (size, steps)) / 10_000).astype(np.float32)
    marks = np.zeros_like(numbers)
    rows = np.arange(size)
    first, second = random.randint(0, EARLY, size), random.randint(EARLY, steps, size)
    marks[rows, first] = marks[rows, second] = 1
    answers = 0.5 + (numbers[rows, first] + numbers[rows, second]) / 4
    return [
        (x, f"{answer:.6f}")
        for x, answer in zip(np.stack((numbers, marks), -1), answers.tolist(), strict=True)
    ]


CORPUS = VectorCorpus(
    name="adding",
    summary="add two marked numbers of a long row; always answering 0.5 finds 15.4 % (error below 0.04)",
    variants={
        "100": "at least 100 steps from the first marked number to the end",
        "10": "at least 10 steps",
        "30": "at least 30 steps",
        "300": "at least 300 steps",
    },
    sizes={"train": 10_000, "dev": 500, "test": 1_000},
    draw=draw,
    tasks=("classify",),
)
