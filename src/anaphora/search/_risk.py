"""Minimum Bayes risk: of many samples, the one that agrees best with all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import Hypothesis, NBest

Utility = Callable[[Sequence[int], Sequence[int]], float]
"""utility(tokens of a candidate, tokens of a reference) -> how good the candidate is, greater is better"""


def mbr(hypotheses: Sequence[Hypothesis], utility: Utility | None = None) -> NBest:
    """The distinct outputs among `hypotheses`, best expected utility first; their `score` is that utility.

        score(y) = 1/N Σₙ utility(y, yₙ)

    over all N hypotheses as stand-ins for the unknown reference, each output as often as it was drawn: with
    samples from p this estimates the mean of utility(y, y') over y' ~ p (Eikema & Aziz 2020). The utility is
    asked once for each pair of distinct outputs; it is `ngram_f` if none is given. Outputs of equal utility
    stay in the order of the list.

    Args:
        hypotheses: the outputs, such as those of `sample`; the same output may come several times.
        utility: utility(symbols of a candidate, symbols of a reference) gives a number, greater is better.

    Raises an `AnaphoraError` without hypotheses.

    >>> drawn = [an.search.Hypothesis(tokens, 0.0, 0.0, [], True) for tokens in ([1, 2, 3], [1, 2, 4], [7, 8])]
    >>> an.search.mbr(drawn)[0].tokens                                  # agrees most with the others
    [1, 2, 3]
    """
    if not hypotheses:
        raise AnaphoraError("mbr needs at least one hypothesis; draw some with sample first.")
    first: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in hypotheses:
        first.setdefault(tuple(hypothesis.tokens), hypothesis)
    times = Counter(tuple(hypothesis.tokens) for hypothesis in hypotheses)
    ranked = NBest()
    outputs = list(first)
    if utility is None:
        worth = _agreement(outputs)
    else:
        worth = np.array([[utility(y, other) for other in outputs] for y in outputs])
    often = np.array([times[y] for y in outputs])
    for hypothesis, total in zip(first.values(), (worth @ often).tolist(), strict=True):
        ranked.append(replace(hypothesis, score=total / len(hypotheses)))
    ranked.sort(key=lambda hypothesis: -hypothesis.score)
    return ranked


def ngram_f(
    candidate: Sequence[Hashable], reference: Sequence[Hashable], *, order: int = 4, beta: float = 1.0
) -> float:
    """How much two sequences overlap in runs of 1 to `order` symbols, from 0 to 1.

        P = mean over n of  matches_n / runs_n(candidate)       R = mean over n of  matches_n / runs_n(reference)
        F = (1 + β²) P R / (β² P + R)

    A run counts as often as both have it. Lengths n for which neither has a run are left out; two empty
    sequences are equal, F = 1. On text, `order=6, beta=2` is chrF (Popović 2015) with spaces counted.

    >>> round(an.search.ngram_f("a b c".split(), "a b d".split()), 3)
    0.389
    """
    precision = recall = lengths = 0.0
    for n in range(1, order + 1):
        ours, theirs = _runs(candidate, n), _runs(reference, n)
        if not ours and not theirs:
            break
        matches = (ours & theirs).total()
        precision += matches / max(ours.total(), 1)
        recall += matches / max(theirs.total(), 1)
        lengths += 1
    if not lengths:
        return 1.0
    if not precision:
        return 0.0
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall) / lengths


def _agreement(outputs: Sequence[Sequence[int]], order: int = 4) -> NDArray[np.float64]:
    """`ngram_f` of every output with every other, ``(N, N)``: Σ min(a, b) over the runs' counts a, b is
    Σ_m #{runs that both have m times or more}, a product of matrices of zeros and ones for each m."""
    lengths = np.array([len(y) for y in outputs])
    precision = np.zeros((len(outputs), len(outputs)))
    for n in range(1, min(order, int(lengths.max(initial=0))) + 1):
        counted = [_runs(y, n) for y in outputs]
        number = {run: k for k, run in enumerate(set().union(*counted))}
        counts = np.zeros((len(outputs), len(number)), np.int64)
        for row, runs in enumerate(counted):
            counts[row, [number[run] for run in runs]] = list(runs.values())
        matches = np.zeros_like(precision)
        for m in range(1, int(counts.max()) + 1):
            often = (counts >= m).astype(np.float32)
            matches += often @ often.T
        precision += matches / np.maximum(lengths - n + 1, 1)[:, None]
    both = precision + precision.T  # recall is the other's precision
    f = 2 * precision * precision.T / np.where(both > 0, both, 1.0)
    longest = np.minimum(np.maximum.outer(lengths, lengths), order)
    return np.where(longest > 0, f / np.maximum(longest, 1), 1.0)


def _runs(sequence: Sequence[Hashable], n: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(tuple(sequence[i : i + n]) for i in range(len(sequence) - n + 1))
