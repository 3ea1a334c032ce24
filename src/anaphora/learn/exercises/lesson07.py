"""Words as vectors."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

from anaphora.learn.exercise import close


def analogy(answer: Any) -> str | None:
    man, king, woman = (1, 0), (1, 2), (3, 0)
    right = [k - m + w for k, m, w in zip(king, man, woman, strict=True)]
    found = list(answer)
    if len(found) == 2 and all(close(x, y, 1e-6) for x, y in zip(found, right, strict=True)):
        return None
    return "king − man + woman, number by number, as a pair."


def cosine(answer: Any) -> str | None:
    draw = random.Random(7)
    for width in (1, 2, 5):
        a, b = ([draw.gauss(0, 3) for _ in range(width)] for _ in range(2))
        product = sum(x * y for x, y in zip(a, b, strict=True))
        if not close(answer(a, b), product / (math.hypot(*a) * math.hypot(*b)), 1e-6):
            if close(answer(a, b), product, 1e-6):
                return "That is the product; divide it by both lengths."
            return "The product of both vectors, divided by the length of each: √Σ x²."
    return None


def near(answer: Any) -> str | None:
    for words, window in (
        (["a", "b", "c", "d"], 1),
        (["a", "b", "a", "c"], 2),
        (["a"], 3),
        (list("abcdef"), 9),
    ):
        right = Counter(
            (words[i], words[j])
            for i in range(len(words))
            for j in range(max(0, i - window), min(len(words), i + window + 1))
            if i != j
        )
        found = Counter(tuple(pair) for pair in answer(words, window))
        if found == right:
            continue
        if any(pair not in right for pair in found):
            return f"Of {words} with a window of {window} there are pairs too far apart, or of a place with itself."
        return f"Of {words} with a window of {window} pairs are missing: to the left and to the right, and each as often as it occurs."
    return None


CHECKS = (analogy, cosine, near)
