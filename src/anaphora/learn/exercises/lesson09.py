"""Encoder, decoder, beam search."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

from anaphora.learn.exercise import close


def forced_loss(answer: Any) -> str | None:
    if close(answer, math.log(2), 0.005):
        return None
    if close(answer, 13 * math.log(2), 0.05):
        return "That is the sum. The loss is the mean over the steps of the decoder."
    return "The mean of −log ½ over all 13 steps, with the natural logarithm."


def shifted(answer: Any) -> str | None:
    for target in ([7, 8, 9], [], [4]):
        fed, wanted = (list(part) for part in answer(list(target), 1, 2))
        if fed != [1, *target]:
            return f"For {target} the decoder is fed the start symbol and then the target: {[1, *target]}, not {fed}."
        if wanted != [*target, 2]:
            return f"For {target} it has to say the target and then the end symbol: {[*target, 2]}, not {wanted}."
    return None


def search(answer: Any) -> str | None:
    draw = random.Random(0)
    for k, length in ((1, 3), (2, 3), (2, 4), (3, 4), (81, 4)) * 6:
        table = {
            beginning: dict(zip("abc", (math.log(p / 100) for p in _shares(draw)), strict=True))
            for steps in range(length)
            for beginning in itertools.product("abc", repeat=steps)
        }
        found, right = tuple(answer(table.__getitem__, k, length)), _beam(table, k, length)
        if found != right:
            return f"With k = {k} and {length} steps the best is {''.join(right)}, and yours gives {''.join(map(str, found))}. Scores are sums; sort all continuations of all kept beginnings together."
    return None


def _shares(draw: random.Random) -> list[int]:
    first, second = sorted(draw.sample(range(1, 100), 2))
    return [first, second - first, 100 - second]


def _beam(table: dict[tuple[str, ...], dict[str, float]], k: int, length: int) -> tuple[str, ...]:
    kept: list[tuple[float, tuple[str, ...]]] = [(0.0, ())]
    for _ in range(length):
        longer = [(score + p, (*row, symbol)) for score, row in kept for symbol, p in table[row].items()]
        kept = sorted(longer, reverse=True)[:k]
    return kept[0][1]


CHECKS = (forced_loss, shifted, search)
