"""Hidden states."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

from anaphora.learn.exercise import close


def bits(answer: Any) -> str | None:
    if close(answer, math.log2(1000), 0.05):
        return None
    return "One bit tells two states apart, two bits four. How many bits tell 1 000 apart?"


def forward(answer: Any) -> str | None:
    draw = random.Random(3)

    def shares(count: int) -> list[float]:
        numbers = [draw.random() for _ in range(count)]
        return [x / sum(numbers) for x in numbers]

    for states, length in ((1, 1), (2, 1), (2, 3), (3, 4)):
        start, transitions = shares(states), [shares(states) for _ in range(states)]
        emissions = [shares(3) for _ in range(states)]
        symbols = [draw.randrange(3) for _ in range(length)]
        whole = 0.0
        for path in itertools.product(range(states), repeat=length):
            p = start[path[0]]
            for i, j in itertools.pairwise(path):
                p *= transitions[i][j]
            for state, symbol in zip(path, symbols, strict=True):
                p *= emissions[state][symbol]
            whole += p
        found = answer(start, transitions, emissions, symbols)
        if not close(found, whole, 1e-9):
            if close(found, math.log(whole), 1e-9):
                return "That is log p(x); give p(x)."
            where = "the first symbol alone" if length == 1 else f"{states} states and {length} symbols"
            return f"With {where} it is not the sum over all paths. α₁ = start · emissions; then move, then multiply by what is shown."
    return None


def measured(answer: Any) -> str | None:
    prior, variance, seen, noise = 0.0, 3.0, 4.0, 1.0
    gain = variance / (variance + noise)
    if close(answer, prior + gain * (seen - prior), 1e-6):
        return None
    return "The gain P / (P + R) says how much of the way from the old belief to the measurement you go."


CHECKS = (bits, forward, measured)
