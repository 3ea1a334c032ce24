"""How good vectors are to search with: is what belongs to an input among its nearest? Shares are in percent."""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.data.alike import Lookups, Numbers
from anaphora.kinds.vector import unit
from anaphora.kinds.measures.judged import Judged, Measure, columns, share
from anaphora.training.own import own_measures

RANKS = (1, 5, 10)


def retrieval(
    s: Any, queries: Numbers, targets: Numbers, asked: Lookups
) -> tuple[dict[str, float], list[int]]:
    """recall_at_k: inputs with a right target among the k nearest; mrr: the mean of 1/rank of the first right one; chance_at_1:
    recall_at_1 of a guess; the user's own measures, of numbers of what is right and what is nearest. And the nearest targets."""
    places, nearest, shares = asked.ranked(unit(queries), unit(targets))
    measured = {one.name: one.of_all() for one in _measures(places)}
    measured["chance_at_1"] = 100.0 * float(shares[places > 0].mean())
    last = asked.keys[:, -1]
    return measured | own_measures(s, last.tolist(), last[nearest].tolist(), measured), nearest


def lookups_judged(queries: Numbers, targets: Numbers, asked: Lookups, seconds: float) -> Judged:
    """The same measures by each input; an answer is as wrong as its right target is far down."""
    places, nearest, _ = asked.ranked(unit(queries), unit(targets))
    given, there = asked.spelled
    wanted, found = [there[i] for i in asked.own], [there[i] for i in nearest]
    return Judged(given, wanted, found, 1 - _inverse(places), _measures(places), seconds)


def _measures(places: Numbers) -> list[Measure]:
    known = (places > 0).astype(float)
    shares = [Measure(f"recall_at_{k}", columns((places <= k) * known, known), share) for k in RANKS]
    return [*shares, Measure("mrr", columns(_inverse(places), known), share)]


def _inverse(places: Numbers) -> Numbers:
    return np.where(places > 0, 1 / np.maximum(places, 1), 0.0)
