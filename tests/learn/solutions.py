"""A solution of every exercise, and answers that are wrong."""

from __future__ import annotations

import random
from typing import Any

SOLUTIONS: dict[str, Any] = {}
WRONG: dict[str, tuple[Any, ...]] = {}

# ---------------------------------------------------------------- 14: linear recurrences and scans
SOLUTIONS["14.1"] = 10  # 2¹⁰ = 1024
WRONG["14.1"] = (9, 1000, 9.97)


def combine(first: Any, second: Any) -> tuple[Any, Any]:
    (a1, b1), (a2, b2) = first, second
    return a2 * a1, a2 * b1 + b2


SOLUTIONS["14.2"] = combine
WRONG["14.2"] = (
    lambda first, second: (first[0] * second[0], first[1] + second[1]),
    lambda first, second: combine(second, first),
    lambda first, second: first,
)
SOLUTIONS["14.3"] = lambda bit: (1 - 2 * bit, 0)
WRONG["14.3"] = (lambda bit: (1 - bit, bit), lambda bit: (0.5 - bit, 0), lambda bit: (-1, 0))

# ---------------------------------------------------------------- 13: pre-training and scaling
SOLUTIONS["13.1"] = 1.5  # 0.5, 0.25, 0.125 above it
WRONG["13.1"] = (1.625, 0, 1.6)
SOLUTIONS["13.2"] = 0.5  # 4^(−½) = ½
WRONG["13.2"] = (2, 0.25, -0.5)


def hidden(words: list[str], share: float, seed: int) -> list[int]:
    draw = random.Random(seed)
    return sorted(draw.sample(range(len(words)), max(1, round(share * len(words)))))


SOLUTIONS["13.3"] = hidden
WRONG["13.3"] = (
    lambda words, share, seed: [],
    lambda words, share, seed: list(range(30)),
    lambda words, share, seed: hidden(words, share, 0) if len(words) > 100 else [],
    lambda words, share, seed: [p for p in hidden(words, share, seed) if len(words) > 100],
)
