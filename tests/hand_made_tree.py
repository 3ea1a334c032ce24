"""A search with a beam of two, worked by hand: log-probabilities of beginnings of "he hit me with a pie"."""

from __future__ import annotations

import math

TREE = {
    "he": -0.7,
    "I": -0.9,
    "he hit": -1.7,
    "he struck": -2.9,
    "I was": -1.6,
    "I got": -1.8,
    "he hit a": -2.8,
    "he hit me": -2.5,
    "I was hit": -2.9,
    "I was struck": -3.8,
    "he hit a tart": -4.0,
    "he hit a pie": -3.4,
    "he hit me with": -3.3,
    "he hit me on": -3.5,
    "he hit a pie in": -4.8,
    "he hit a pie with": -4.5,
    "he hit me with a": -3.7,
    "he hit me with one": -4.3,
    "he hit me with a pie": -4.3,
    "he hit me with a tart": -4.6,
    "he hit me with one pie": -5.0,
    "he hit me with one tart": -5.3,
}
VOCABULARY = list(dict.fromkeys(word for text in TREE for word in text.split()))


def following(text: str) -> list[float]:
    """log p of each word of the vocabulary after ``text``, and of the end: at the leaves only the end follows, with
    probability 1."""
    here = TREE.get(text, 0.0)
    words = [TREE.get(f"{text} {word}".strip(), -math.inf) - here for word in VOCABULARY]
    return [*words, 0.0 if max(words) == -math.inf else -math.inf]
