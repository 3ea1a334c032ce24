"""The next symbol of a draw from one row of log p. Imports no torch."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.search._filters import Filters, Floats, ranked
from anaphora.search._numbers import check_greatest


class Wanted(NamedTuple):
    """A symbol to draw from a row, by the next number of ``chance``."""

    row: int
    chance: np.random.Generator
    filters: Filters
    alternatives: int


class Pick(NamedTuple):
    """A drawn symbol with log p under the model and q after the filters, and the most probable symbols in its place."""

    symbol: int
    log_prob: float
    q: float
    alternatives: list[tuple[int, float]]


Picked = Pick | None | AnaphoraError
"""None where every symbol is forbidden, an error where the row is no distribution."""


def from_row(log_probs: Floats, wanted: Wanted) -> Picked:
    why = refusal(float(log_probs.max()))
    if why is not None:
        return why[0]
    symbols, q = wanted.filters(log_probs)
    place = inverted(q, wanted.chance.random())
    others = (
        [(int(i), log_probs[i]) for i in ranked(log_probs, wanted.alternatives)]
        if wanted.alternatives
        else []
    )
    return pick_of(int(symbols[place]), log_probs[symbols[place]], q[place], others)


def refusal(greatest: float) -> tuple[AnaphoraError | None] | None:
    """What is said of a row that cannot be drawn from; None where it can."""
    try:
        check_greatest(greatest)
    except AnaphoraError as error:
        return (error,)
    return (None,) if greatest == -math.inf else None


def inverted(mass: Floats, number: float) -> int:
    """The first place whose cumulated mass exceeds ``number`` (from 0 to 1) of the whole."""
    cumulated = np.cumsum(mass)
    return exceeding(cumulated, number * cumulated[-1])


def exceeding(cumulated: Floats, number: float) -> int:
    place = int(np.searchsorted(cumulated, number, side="right"))
    # The product may round up to the whole mass: then it is the last place that has any.
    return min(place, int(np.searchsorted(cumulated, cumulated[-1], side="left")))


def pick_of(symbol: int, log_prob: float, q: float, others: list[tuple[int, float]]) -> Pick:
    kept = [(other, min(float(value), 0.0)) for other, value in others]
    return Pick(symbol, min(float(log_prob), 0.0), float(q), kept)
