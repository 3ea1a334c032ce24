"""Linear recurrences and scans."""

from __future__ import annotations

import math
import random
from typing import Any

from anaphora.learn.exercise import close


def rounds(answer: Any) -> str | None:
    if close(answer, math.ceil(math.log2(1000)), 0):
        return None
    return "Each round doubles the steps that a pair covers: 1, 2, 4, … How often until it covers all?"


def combine(answer: Any) -> str | None:
    draw = random.Random(14)
    steps = [(draw.uniform(-1, 1), draw.uniform(-1, 1)) for _ in range(6)]
    start = draw.uniform(-1, 1)
    h = start
    for a, b in steps:
        h = a * h + b
    grouped = [answer(steps[i], steps[i + 1]) for i in (0, 2, 4)]
    a, b = answer(answer(grouped[0], grouped[1]), grouped[2])
    if close(a * start + b, h, 1e-9):
        return None
    a, b = answer((2.0, 3.0), (5.0, 7.0))
    if close(a, 10.0, 1e-9):
        return "The factor is right. What becomes of the first step's b when the second step multiplies it?"
    return "Put h₁ = a₁ h₀ + b₁ into h₂ = a₂ h₁ + b₂ and read off what multiplies h₀ and what does not."


def parity(answer: Any) -> str | None:
    if any(float(answer(bit)[0]) >= 0 for bit in (1,)):
        return "Factors that are not negative keep the sign of h. What must a one do to it?"
    draw = random.Random(3)
    for length in (1, 2, 7, 40, 2000):
        h, ones = 1.0, 0
        for _ in range(length):
            bit = draw.randint(0, 1)
            a, b = answer(bit)
            h, ones = float(a) * h + float(b), ones + bit
            if h == 0 or not math.isfinite(h) or (h < 0) != bool(ones % 2):
                return f"After {ones} ones in a row of up to {length} bits the state is {h:.3g}: it must neither fade nor grow."
    return None


CHECKS = (rounds, combine, parity)
