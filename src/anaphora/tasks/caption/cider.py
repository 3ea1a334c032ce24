"""CIDEr-D: how much of what people say of a picture, and of few other pictures, a caption says (Vedantam et al. 2015).

A caption c and the references s_1 … s_m of its picture are split at spaces. For n = 1 … 4, with h_k(s) how often the
n-gram k is in s, and |I| pictures of which df_k have a reference with k:

    g_k(s) = h_k(s) · ln(|I| / max(1, df_k))
    CIDEr-D_n = 10/m · Σ_j exp(−(|c| − |s_j|)² / 2σ²) · Σ_k min(g_k(c), g_k(s_j)) g_k(s_j) / (‖g(c)‖ ‖g(s_j)‖),   σ = 6
    CIDEr-D = mean over n = 1 … 4, then over pictures

min keeps a word said again and again from counting again and again; lengths count words. The best value is 10. An n-gram
that every picture's references have weighs nothing, so with a single picture all is 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

LONGEST = 4
SIGMA = 6.0

Vector = dict[tuple[str, ...], float]


def cider(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The mean over pictures, from 0 to 10; ``references[i]`` are those of picture i."""
    if not outputs:
        return 0.0
    weights = [_rarity(references, n) for n in range(1, LONGEST + 1)]
    pairs = zip(outputs, references, strict=True)
    return sum(_one(output, wanted, weights) for output, wanted in pairs) / len(outputs)


def _one(output: str, references: Sequence[str], weights: Sequence[Vector]) -> float:
    total = 0.0
    for n, weight in enumerate(weights, start=1):
        mine = _weighed(output, n, weight)
        for reference in references:
            gap = len(output.split()) - len(reference.split())
            closeness = math.exp(-(gap**2) / (2 * SIGMA**2))
            total += closeness * _likeness(mine, _weighed(reference, n, weight))
    return 10 * total / (len(references) * len(weights))


def _likeness(mine: Vector, theirs: Vector) -> float:
    norm = math.sqrt(sum(v * v for v in mine.values()) * sum(v * v for v in theirs.values()))
    if norm == 0:
        return 0.0
    return sum(min(mine[gram], value) * value for gram, value in theirs.items() if gram in mine) / norm


def _weighed(text: str, n: int, weight: Vector) -> Vector:
    # What no reference has weighs as much as what a single picture has.
    rarest = weight[()]
    return {gram: count * weight.get(gram, rarest) for gram, count in _grams(text, n).items()}


def _rarity(references: Sequence[Sequence[str]], n: int) -> Vector:
    """ln(|I| / df) of every n-gram of the references; under () that of one which none has."""
    among: Counter[tuple[str, ...]] = Counter()
    for wanted in references:
        among.update({gram for reference in wanted for gram in _grams(reference, n)})
    pictures = len(references)
    return {(): math.log(pictures), **{gram: math.log(pictures / count) for gram, count in among.items()}}


def _grams(text: str, n: int) -> Counter[tuple[str, ...]]:
    words = text.split()
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
