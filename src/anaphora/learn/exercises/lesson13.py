"""Pre-training and scaling."""

from __future__ import annotations

import math
from typing import Any

from anaphora.learn.exercise import close

_LOSSES = (2.0, 1.75, 1.625)
"""At N, 4N and 16N weights."""


def _ratio() -> float:
    """By which the part above the floor falls when N grows fourfold."""
    first, second, third = _LOSSES
    return (second - third) / (first - second)


def floor(answer: Any) -> str | None:
    ratio = _ratio()
    right = _LOSSES[2] - (_LOSSES[1] - _LOSSES[2]) * ratio / (1 - ratio)  # the rest of a geometric series
    if close(answer, right, 1e-3):
        return None
    return "From size to size the loss falls by 0.25, then by 0.125: how does that go on, and what is the sum of all further falls?"


def exponent(answer: Any) -> str | None:
    if close(answer, -math.log(_ratio()) / math.log(4), 1e-3):
        return None
    return "What is above L_∞ is multiplied by the same number whenever N is multiplied by 4. That number is 4^(−α)."


def hidden(answer: Any) -> str | None:
    words = [f"w{n}" for n in range(200)]
    drawn = [list(answer(words, 0.15, seed)) for seed in range(20)]
    for places in drawn:
        if places != sorted(set(places)) or not all(0 <= place < len(words) for place in places):
            return "Give places of the list, from 0, in order and each once."
    mean = sum(map(len, drawn)) / len(drawn)
    if not 0.1 * len(words) <= mean <= 0.2 * len(words):
        return f"Of 200 words {mean:.1f} are hidden on average; about 30 should be."
    if len({tuple(places) for places in drawn}) < len(drawn) // 2:
        return "Different seeds hide the same words; draw them with the seed."
    if drawn[3] != list(answer(words, 0.15, 3)):
        return "The same seed must hide the same words again."
    if any(not list(answer(["one", "two"], 0.15, seed)) for seed in range(10)):
        return "Of a short text nothing is hidden, so nothing can be learned from it; hide at least one word."
    return None


CHECKS = (floor, exponent, hidden)
