"""Is the number of ones even or odd? Each bit changes the answer, so all must be read and one bit remembered."""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

SHORTEST = 5
"""Shorter strings are the building blocks of all others and only in train."""


def draw(variant: str, random: Random) -> Example:
    """1 to ``variant`` bits with spaces between them, all lengths alike."""
    bits = [random.randrange(2) for _ in range(1 + random.randrange(int(variant)))]
    text = " ".join(map(str, bits))
    return Example(text, "odd" if sum(bits) % 2 else "even", text if len(bits) >= SHORTEST else None)


CORPUS = Corpus(
    name="parity",
    summary="is the number of ones even or odd? a guess is right in 50 %",
    variants={
        "12": "1 to 12 bits, all lengths alike",
        "24": "1 to 24 bits",
        "48": "1 to 48 bits",
    },
    sizes={"train": 20_000, "dev": 400, "test": 400},
    draw=draw,
    tasks=("classify",),
    unit="examples",
)
