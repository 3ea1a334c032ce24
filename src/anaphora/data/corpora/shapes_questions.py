"""Questions about a scene that have one word as their only right answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from anaphora.data.corpora.shapes_drawing import COLOURS, SHAPES, Figure

NUMBERS = ("none", "one", "two", "three", "four", "five", "six")


def ask(figures: Sequence[Figure], random: Random) -> list[tuple[str, str]]:
    """One question of each kind that the scene allows, with its answer."""
    one = _any(figures, random)
    asked = [
        *_only(figures, random),
        (f"what size is the {one.colour} {one.shape} ?", one.size),
        _count(figures, random),
        _whether(figures, random),
    ]
    return asked + _lies(figures, random)


def _any(figures: Sequence[Figure], random: Random) -> Figure:
    return figures[random.randrange(len(figures))]


def _only(figures: Sequence[Figure], random: Random) -> list[tuple[str, str]]:
    """The colour of the only one of its shape, and the shape of the only one of its colour."""
    shapes = Counter(figure.shape for figure in figures)
    colours = Counter(figure.colour for figure in figures)
    asked = []
    if shaped := [figure for figure in figures if shapes[figure.shape] == 1]:
        one = _any(shaped, random)
        asked.append((f"what colour is the {one.shape} ?", one.colour))
    if coloured := [figure for figure in figures if colours[figure.colour] == 1]:
        one = _any(coloured, random)
        asked.append((f"what shape is the {one.colour} thing ?", one.shape))
    return asked


def _count(figures: Sequence[Figure], random: Random) -> tuple[str, str]:
    """How many of a shape that may be missing; half the time one that is there."""
    shape = _any(figures, random).shape if random.randrange(2) else SHAPES[random.randrange(len(SHAPES))]
    count = sum(figure.shape == shape for figure in figures)
    plural = "crosses" if shape == "cross" else f"{shape}s"
    return f"how many {plural} are there ?", NUMBERS[count]


def _whether(figures: Sequence[Figure], random: Random) -> tuple[str, str]:
    """Yes and no as often as each other. What is not there shares colour or shape with something that is."""
    one = _any(figures, random)
    if random.randrange(2):
        return f"is there a {one.colour} {one.shape} ?", "yes"
    there = {(figure.colour, figure.shape) for figure in figures}
    missing = [(colour, one.shape) for colour in COLOURS if (colour, one.shape) not in there]
    missing += [(one.colour, shape) for shape in SHAPES if (one.colour, shape) not in there]
    colour, shape = missing[random.randrange(len(missing))]
    return f"is there a {colour} {shape} ?", "no"


def _lies(figures: Sequence[Figure], random: Random) -> list[tuple[str, str]]:
    """How two objects lie to each other, where their cells leave no doubt: yes and no as often as each other."""
    pairs = [(a, b) for a in figures for b in figures if a is not b]
    asked = []
    for word, differs in (
        ("left of", [(a, b, a.column < b.column) for a, b in pairs if a.column != b.column]),
        ("above", [(a, b, a.row < b.row) for a, b in pairs if a.row != b.row]),
    ):
        if differs:
            a, b, so = differs[random.randrange(len(differs))]
            text = f"is the {a.colour} {a.shape} {word} the {b.colour} {b.shape} ?"
            asked.append((text, "yes" if so else "no"))
    return asked
