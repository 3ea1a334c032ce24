"""Which letter came first? Nothing else counts, so the only question is how long a model remembers it."""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

LETTERS = "abcdefgh"


def draw(variant: str, random: Random) -> Example:
    """A letter and ``variant`` further ones; the first is the label."""
    letters = [LETTERS[random.randrange(len(LETTERS))] for _ in range(1 + int(variant))]
    text = " ".join(letters)
    return Example(text, letters[0], text)


CORPUS = Corpus(
    name="recall",
    summary="the first of many letters is the answer at the end; a guess is right in 12.5 %",
    variants={
        "10": "10 letters follow the first one",
        "30": "30 letters follow",
        "100": "100 letters follow",
    },
    sizes={"train": 10_000, "dev": 500, "test": 1_000},
    draw=draw,
    tasks=("classify",),
    unit="examples",
)
