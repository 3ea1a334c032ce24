"""How good vectors are to search with: is what belongs to an input among its nearest? Shares are in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from anaphora.kinds.measures.judged import Judged, Measure, Measured, columns, counted, share, values

Numbers = np.ndarray[Any, Any]
RANKS = (1, 5, 10)


class Lookups(Protocol):
    """What is looked up among what, see `anaphora.data.alike.Lookups`."""

    @property
    def own(self) -> Numbers: ...

    @property
    def spelled(self) -> tuple[Sequence[str], Sequence[str]]: ...

    def ranked(self, queries: Numbers, targets: Numbers) -> tuple[Numbers, list[int], Numbers]: ...


@dataclass(frozen=True)
class Retrieved(Measured):
    """With the rank of the first right target of each input (0: there is none), and the nearest one."""

    places: Numbers
    nearest: list[int]


def lookup_measures(asked: Lookups, queries: Numbers, targets: Numbers) -> Retrieved:
    """recall_at_k: inputs with a right target among the k nearest; mrr: the mean of 1/rank of the first right one; chance_at_1:
    recall_at_1 of a guess. ``queries`` and ``targets`` are unit vectors."""
    places, nearest, shares = asked.ranked(queries, targets)
    measures = _measures(places)
    chance = {"chance_at_1": 100.0 * float(shares[places > 0].mean())}
    return Retrieved(measures, {**values(measures), **chance}, places, nearest)


def lookups_judged(asked: Lookups, found: Retrieved, seconds: float) -> Judged:
    """Each input with what is nearest, which is as wrong as its right target is far down."""
    given, there = asked.spelled
    wanted, nearest = [there[i] for i in asked.own], [there[i] for i in found.nearest]
    return Judged(given, wanted, nearest, 1 - _inverse(found.places), found.measures, seconds)


def _measures(places: Numbers) -> list[Measure]:
    known = (places > 0).astype(float)
    shares = [counted(f"recall_at_{k}", columns((places <= k) * known, known), share) for k in RANKS]
    ranks = columns(_inverse(places), known)
    return [*shares, counted("mrr", ranks, share, sums=ranks.sum(0))]


def _inverse(places: Numbers) -> Numbers:
    return np.where(places > 0, 1 / np.maximum(places, 1), 0.0)
