"""Counting."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

from anaphora.learn.exercise import close

_WORDS = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}


def perplexity(answer: Any) -> str | None:
    log_probs = [math.log(1 / 20)] * 5
    if close(answer, math.exp(-sum(log_probs) / len(log_probs)), 1e-6):
        return None
    return "Put log(1/20) for every word into exp(−(1/L) Σ log p). The number of words does not matter; why?"


def temper(answer: Any) -> str | None:
    for p in ([0.5, 0.25, 0.25], [0.9, 0.1], [0.2] * 5, [0.6, 0.4, 0.0]):
        for temperature in (0.5, 1.0, 2.0):
            powers = [x ** (1 / temperature) for x in p]
            found = list(answer(p, temperature))
            if len(found) != len(p):
                return "Give as many probabilities as you got."
            if abs(sum(map(float, found)) - 1) > 1e-6:
                return "What you give does not sum to 1; divide by the sum."
            if any(not close(x, y / sum(powers), 1e-6) for x, y in zip(found, powers, strict=True)):
                return f"At T = {temperature} of {p} the result is another. Raise each probability to 1/T."
    return None


def third_merge(answer: Any) -> str | None:
    made = [piece for piece, _ in merges(_WORDS, 3)]
    if answer == made[2]:
        return None
    if answer in made[:2]:
        return "That is an earlier merge: after each one, count all pairs of neighbours again."
    return "Count pairs of neighbours, each word as often as it occurs; merge the most frequent pair everywhere; count again."


def merges(counts: dict[str, int], number: int) -> list[tuple[str, int]]:
    """The first merges of byte pair encoding, each with its count; the earlier pair wins where counts are equal."""
    words, made = [(list(word), count) for word, count in counts.items()], []
    for _ in range(number):
        seen: Counter[tuple[str, str]] = Counter()
        for pieces, count in words:
            for pair in pairwise(pieces):
                seen[pair] += count
        (first, second), times = seen.most_common(1)[0]
        made.append((first + second, times))
        for pieces, _ in words:
            for i in range(len(pieces) - 2, -1, -1):
                if pieces[i : i + 2] == [first, second]:
                    pieces[i : i + 2] = [first + second]
    return made


CHECKS = (perplexity, temper, third_merge)
