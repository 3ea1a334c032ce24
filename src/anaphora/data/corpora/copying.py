"""Random letters to be repeated, or repeated backwards: all that counts is how much a model can remember."""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

LONGEST = 40
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def draw(variant: str, random: Random) -> Example:
    """1 to 40 letters with spaces between them, all lengths alike."""
    letters = [_LETTERS[random.randrange(len(_LETTERS))] for _ in range(1 + random.randrange(LONGEST))]
    source = " ".join(letters)
    target = source if variant == "copy" else " ".join(reversed(letters))
    # Single letters are the building blocks of all others.
    return Example(source, target, source if len(letters) > 1 else None)


CORPUS = Corpus(
    name="copy",
    summary="1 to 40 random letters, to be repeated in the same or the reverse order",
    variants={"copy": "the same order", "reverse": "the reverse order"},
    sizes={"train": 20_000, "dev": 500, "test": 1_000},
    draw=draw,
)
