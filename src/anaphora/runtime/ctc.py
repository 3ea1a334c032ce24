"""Texts from the frames of a CTC model, on arrays: the best path, prefix beam search, and log p of given symbols."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.search._hypothesis import Hypothesis, NBest

BLANK = 0
Floats = NDArray[np.float64]


def greedy(log_probs: NDArray[Any]) -> NBest:
    """The labels of the best path: the best symbol at every frame of log p ``(frames, symbols)``, collapsed."""
    path = log_probs.argmax(1) if len(log_probs) else np.zeros(0, np.int64)
    score = float(log_probs.max(1).astype(np.float64).sum()) if len(log_probs) else 0.0
    kept = path != BLANK
    kept[1:] &= path[1:] != path[:-1]
    return NBest([Hypothesis(path[kept].tolist(), score, score, [], finished=True)])


def prefix_beam(log_probs: NDArray[Any], width: int, n_best: int) -> NBest:
    """The ``n_best`` labellings by the sum over all their paths, keeping ``width`` prefixes at every frame (Graves 2006)."""
    beam: dict[tuple[int, ...], tuple[float, float]] = {
        (): (0.0, -math.inf)
    }  # paths that end in a blank, in a label
    for q in log_probs.astype(np.float64):
        found: dict[tuple[int, ...], tuple[float, float]] = {}
        for prefix, (blank, label) in beam.items():
            stays = -math.inf
            if prefix:
                last = q[prefix[-1]]
                stays = label + last
                if prefix[:-1] in beam:
                    shorter = beam[prefix[:-1]]
                    twice = len(prefix) > 1 and prefix[-2] == prefix[-1]
                    stays = _add(stays, (shorter[0] if twice else _add(*shorter)) + last)
            found[prefix] = (_add(blank, label) + q[BLANK], stays)
        for prefix, scores in _extended(q, beam, width):
            if prefix not in beam:
                found[prefix] = scores
        kept = heapq.nlargest(width, found.items(), key=lambda item: _add(*item[1]))
        beam = {prefix: scores for prefix, scores in kept if _add(*scores) > -math.inf}
    ranked = sorted(beam.items(), key=lambda item: -_add(*item[1]))[:n_best]
    scored = [(list(prefix), float(_add(*masses))) for prefix, masses in ranked]
    return NBest(Hypothesis(tokens, score, score, [], finished=True) for tokens, score in scored)


def _extended(q: Floats, beam: dict[tuple[int, ...], tuple[float, float]], width: int) -> Any:
    """Each prefix with one symbol more, of which the best ``width`` and one more can matter."""
    symbols = [int(k) for k in np.argsort(-q, kind="stable")[: width + 2] if k != BLANK and q[k] > -math.inf]
    for prefix, (blank, label) in beam.items():
        for k in symbols:
            before = blank if prefix and prefix[-1] == k else _add(blank, label)
            yield (*prefix, k), (-math.inf, before + float(q[k]))


def log_prob(log_probs: NDArray[Any], symbols: Sequence[int]) -> float:
    """log p(y | x), the sum over all paths that spell ``symbols``; −∞ where the frames are too few."""
    if len(symbols) + sum(a == b for a, b in itertools.pairwise(symbols)) > len(log_probs):
        return -math.inf
    spelled = [BLANK, *itertools.chain.from_iterable((symbol, BLANK) for symbol in symbols)]
    alpha = np.full(len(spelled), -np.inf)
    alpha[0] = 0.0
    skips = np.array(
        [i >= 2 and spelled[i] != BLANK and spelled[i] != spelled[i - 2] for i in range(len(spelled))]
    )
    first = True
    for q in log_probs.astype(np.float64):
        after = alpha.copy()
        after[1:] = np.logaddexp(after[1:], alpha[:-1])
        after[2:] = np.where(skips[2:], np.logaddexp(after[2:], alpha[:-2]), after[2:])
        if first:  # a path begins with the blank or with the first symbol
            after = np.where(np.arange(len(spelled)) < 2, 0.0, -np.inf)
            first = False
        alpha = after + q[spelled]
    return float(np.logaddexp.reduce(alpha[-2:])) if len(log_probs) else 0.0


def _add(a: float, b: float) -> float:
    """log(eᵃ + eᵇ)."""
    high, low = (a, b) if a >= b else (b, a)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
