"""Corpora of algorithms: copying, parity, recall, brackets, adding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from anaphora.data.corpora.corpus import CORPUS_SEED, SPLITS, Corpus, Embedded, Example

# Embedded corpora of sequences of vectors: drawn many at a time, written as JSON lines.

Array = np.ndarray[Any, np.dtype[np.float32]]
SHOWN = 8  # steps of a sequence that are shown


@dataclass(frozen=True)
class VectorCorpus(Embedded):
    """Sequences ``(time, features)`` with an answer each. Splits are drawn from generators of their own; numbers
    as many as these never come together twice."""

    name: str
    summary: str
    variants: Mapping[str, str]
    sizes: Mapping[str, int]
    draw: Callable[[str, int, np.random.RandomState], list[tuple[Array, str]]]
    """Variant, how many, and a generator: that many random sequences with their answers."""
    tasks: tuple[str, ...]
    unit: str = "examples"
    form: str = "jsonl"
    framewise: bool = False
    """Whether an answer has a label for every step, with spaces between."""

    def generate(
        self, variant: str, split: str, size: int, seed: int = CORPUS_SEED
    ) -> list[tuple[Array, str]]:
        """``size`` sequences of a split with their answers."""
        place = (seed, SPLITS.index(split), int.from_bytes(variant.encode(), "big"))
        generator = np.random.MT19937(np.random.SeedSequence(place))
        return self.draw(variant, size, np.random.RandomState(generator))

    def show(self, variant: str, split: str, size: int) -> list[str]:
        lines = []
        for x, answer in self.generate(variant, split, size):
            steps = "  ".join(" ".join(f"{value:g}" for value in step) for step in x[:SHOWN].tolist())
            more = "  …" if len(x) > SHOWN else ""
            answer = " ".join(answer.split()[:SHOWN]) + more if self.framewise else answer
            lines += [f"{steps}{more}", f"  → {answer}"]
        return lines

    def records(self, variant: str, split: str, size: int) -> list[Any]:
        name = "tags" if self.framewise else "label"
        return [
            {"sequence": _written(x), name: answer.split() if self.framewise else answer}
            for x, answer in self.generate(variant, split, size)
        ]

    def text(self, variant: str, split: str, size: int) -> str:
        return "".join(json.dumps(record) + "\n" for record in self.records(variant, split, size))


def _written(x: Array) -> list[list[float]]:
    """The numbers in their shortest decimal form, from which the same float32 is read again."""
    return [[float(str(value)) for value in step] for step in x]


# Random letters to be repeated, or repeated backwards: all that counts is how much a model can remember.

LONGEST_COPY = 40
_COPIED = "abcdefghijklmnopqrstuvwxyz"


def draw_copy(variant: str, random: Random) -> Example:
    """1 to 40 letters with spaces between them, all lengths alike."""
    letters = [_COPIED[random.randrange(len(_COPIED))] for _ in range(1 + random.randrange(LONGEST_COPY))]
    source = " ".join(letters)
    target = source if variant == "copy" else " ".join(reversed(letters))
    # Single letters are the building blocks of all others.
    return Example(source, target, source if len(letters) > 1 else None)


COPYING = Corpus(
    name="copy",
    summary="1 to 40 random letters, to be repeated in the same or the reverse order",
    variants={"copy": "the same order", "reverse": "the reverse order"},
    sizes={"train": 20_000, "dev": 500, "test": 1_000},
    draw=draw_copy,
)


# Is the number of ones even or odd? Each bit changes the answer, so all must be read and one bit remembered.

SHORTEST = 5
"""Shorter strings are the building blocks of all others and only in train."""


def draw_bits(variant: str, random: Random) -> Example:
    """1 to ``variant`` bits with spaces between them, all lengths alike."""
    bits = [random.randrange(2) for _ in range(1 + random.randrange(int(variant)))]
    text = " ".join(map(str, bits))
    return Example(text, "odd" if sum(bits) % 2 else "even", text if len(bits) >= SHORTEST else None)


PARITY = Corpus(
    name="parity",
    summary="is the number of ones even or odd? a guess is right in 50 %",
    variants={
        "12": "1 to 12 bits, all lengths alike",
        "24": "1 to 24 bits",
        "48": "1 to 48 bits",
    },
    sizes={"train": 20_000, "dev": 400, "test": 400},
    draw=draw_bits,
    tasks=("classify",),
    unit="examples",
)


# Which letter came first? Nothing else counts, so the only question is how long a model remembers it.

LETTERS = "abcdefgh"


def draw_pairs(variant: str, random: Random) -> Example:
    """A letter and ``variant`` further ones; the first is the label."""
    letters = [LETTERS[random.randrange(len(LETTERS))] for _ in range(1 + int(variant))]
    text = " ".join(letters)
    return Example(text, letters[0], text)


RECALL = Corpus(
    name="recall",
    summary="the first of many letters is the answer at the end; a guess is right in 12.5 %",
    variants={
        "10": "10 letters follow the first one",
        "30": "30 letters follow",
        "100": "100 letters follow",
    },
    sizes={"train": 10_000, "dev": 500, "test": 1_000},
    draw=draw_pairs,
    tasks=("classify",),
    unit="examples",
)


# Are all brackets closed, each by its own kind, the last opened first? Order is everything: counts never tell.

LONGEST = 20
KINDS = ("()", "[]", "{}")
_LETTERS = "abcdef"
_OPENERS = {kind[1]: kind[0] for kind in KINDS}


def balanced(symbols: list[str]) -> bool:
    """Whether every bracket is closed by its own kind, the last opened first. Letters do not count."""
    opened: list[str] = []
    for symbol in symbols:
        if symbol in _OPENERS:
            if not opened or opened.pop() != _OPENERS[symbol]:
                return False
        elif symbol in _OPENERS.values():
            opened.append(symbol)
    return not opened


def draw_brackets(variant: str, random: Random) -> Example:
    """Half of the examples are balanced; both halves hold the same brackets equally often."""
    wanted = random.randrange(2) == 0
    symbols = _nested(random, wanted) if variant == "nested" else _apart(int(variant), random, wanted)
    text = " ".join(symbols)
    return Example(text, "balanced" if wanted else "unbalanced", text)


def _nested(random: Random, wanted: bool) -> list[str]:
    """Up to 20 brackets. What is not balanced differs from what is by two brackets that changed places."""
    while True:
        symbols = _grow(2 + random.randrange(LONGEST // 2 - 1), random)
        if wanted:
            return symbols
        first, second = random.randrange(len(symbols)), random.randrange(len(symbols))
        symbols[first], symbols[second] = symbols[second], symbols[first]
        if not balanced(symbols):
            return symbols


def _grow(pairs: int, random: Random) -> list[str]:
    """A balanced row of ``pairs`` pairs: a pair around some of them, and the others behind it."""
    if pairs == 0:
        return []
    kind = KINDS[random.randrange(len(KINDS))]
    inside = random.randrange(pairs)
    return [kind[0], *_grow(inside, random), kind[1], *_grow(pairs - 1 - inside, random)]


def _apart(lag: int, random: Random, wanted: bool) -> list[str]:
    """Two brackets, ``lag`` letters, the two that close them: nested ``( [ … ] )``, or crossed ``( [ … ) ]``."""
    first = random.randrange(len(KINDS))
    second = (first + 1 + random.randrange(len(KINDS) - 1)) % len(KINDS)
    outer, inner = KINDS[first], KINDS[second]
    letters = [_LETTERS[random.randrange(len(_LETTERS))] for _ in range(lag)]
    closing = (inner[1], outer[1]) if wanted else (outer[1], inner[1])
    return [outer[0], inner[0], *letters, *closing]


BRACKETS = Corpus(
    name="brackets",
    summary="are the brackets balanced? a guess is right in 50 %, and so is counting them",
    variants={
        "nested": "4 to 20 brackets of three kinds; two that changed places spoil half of them",
        "10": "two pairs, nested or crossed, with 10 letters between opening and closing",
        "30": "the same with 30 letters between",
        "100": "the same with 100 letters between",
    },
    sizes={"train": 10_000, "dev": 500, "test": 1_000},
    draw=draw_brackets,
    tasks=("classify",),
    unit="examples",
)


# The adding problem (Hochreiter & Schmidhuber 1997): add the two marked numbers of a long row of numbers.

EARLY = 10


def draw_sum(variant: str, size: int, random: np.random.RandomState) -> list[tuple[Any, str]]:
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


ADDING = VectorCorpus(
    name="adding",
    summary="add two marked numbers of a long row; always answering 0.5 finds 15.4 % (error below 0.04)",
    variants={
        "100": "at least 100 steps from the first marked number to the end",
        "10": "at least 10 steps",
        "30": "at least 30 steps",
        "300": "at least 300 steps",
    },
    sizes={"train": 10_000, "dev": 500, "test": 1_000},
    draw=draw_sum,
    tasks=("classify",),
)
