"""Number words: English to German, which turns tens and units round, or to French, which counts in twenties."""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.corpus import Corpus, Example
from anaphora.data.corpora.numbers_english import english
from anaphora.data.corpora.numbers_french import french
from anaphora.data.corpora.numbers_german import german

MOST_DIGITS = 9
_TARGETS = {"de": german, "fr": french}


def draw(variant: str, random: Random) -> Example:
    """A number in words. Numbers below 100 are what all others are made of, so they are only in train."""
    number = draw_number(random)
    key = str(number) if number >= 100 else None
    return Example(english(number), _TARGETS[variant](number), key)


def draw_number(random: Random) -> int:
    """A number below 10⁹ such that short, long and round ones all occur.

    One third each: any number; all counts of digits alike; the same with about half of the digits zero.
    """
    style = random.randrange(3)
    if style == 0:
        return random.randrange(10**MOST_DIGITS)
    digits = 1 + random.randrange(MOST_DIGITS)
    if style == 1:
        return random.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)
    number = 1 + random.randrange(9)
    for _ in range(digits - 1):
        number = 10 * number + (1 + random.randrange(9) if random.randrange(2) else 0)
    return number


CORPUS = Corpus(
    name="numbers",
    summary="number words up to 999 999 999, from English to German or French",
    variants={"de": "into German", "fr": "into French"},
    sizes={"train": 20_000, "dev": 500, "test": 1_000},
    draw=draw,
    tasks=("translate", "embed"),
)
