"""Outputs drawn at random, symbol by symbol. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import Hypothesis, check_greatest, normalised

# ----------------------------------------------------------------------------
# Which symbols may be drawn, and how probably each.

Floats = NDArray[np.float64]
_FIRST_LOOK = 64  # symbols ranked at first; a flatter distribution makes the filters look at eight times more


@dataclass(frozen=True)
class Filters:
    """q(i) ∝ p(i) for the symbols i that pass every filter, 0 for the others, where p(i) ∝ exp(log pᵢ / T).

    With the symbols ranked by p (equal ones: the smaller symbol first), the one at rank r = 0, 1, … passes

        top_k   if r < k                       (0: every rank)
        top_p   if Σ_{s<r} p(s) < top_p        (the smallest set that holds at least that much; 1: all)
        min_p   if p(r) ≥ min_p · p(0)         (0: all)

    All three look at the same p, so their order does not matter. T = 0 is the limit: the best symbol alone.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            raise AnaphoraError(f"temperature must be a number from 0 on, but is {self.temperature}.")
        if self.top_k < 0:
            raise AnaphoraError(f"top_k must be at least 0 (0 keeps every symbol), but is {self.top_k}.")
        if not (0 < self.top_p <= 1 and 0 <= self.min_p <= 1):
            raise AnaphoraError(
                f"top_p must lie in (0, 1] and min_p in [0, 1], but they are {self.top_p} and {self.min_p}."
            )

    def __call__(self, log_probs: Floats) -> tuple[NDArray[np.intp], Floats]:
        """The symbols that pass, of one row (V,) with a finite maximum, and q of each."""
        with np.errstate(over="ignore"):  # a tiny temperature sends all but the best symbol to −∞
            scaled = (log_probs - log_probs.max()) / (self.temperature or 1.0)
        top_k = 1 if self.temperature == 0 else self.top_k
        if self.plain:
            symbols = np.flatnonzero(np.exp(scaled))
        else:
            symbols = self._passing(scaled, top_k or len(scaled))
        mass = np.exp(scaled[symbols])
        return symbols, mass / mass.sum()

    @property
    def plain(self) -> bool:
        """Whether every symbol passes."""
        return self.temperature > 0 and not self.top_k and self.top_p == 1 and self.min_p == 0

    def passing(self, p: Floats, total: float) -> int:
        """How many of the first ranks pass, p of each falling; ``total``: the mass of all symbols."""
        before = np.cumsum(p) - p
        passes = (p > 0) & (before < self.top_p * total) & (p >= self.min_p * p[0])
        return len(p) if passes.all() else int(passes.argmin())

    def _passing(self, scaled: Floats, top_k: int) -> NDArray[np.intp]:
        """Each filter keeps the ranks before some point; only as many ranks are sorted as it takes."""
        total = float(np.exp(scaled).sum()) if self.top_p < 1 else np.inf
        looked_at = _FIRST_LOOK
        while True:
            symbols = ranked(scaled, min(looked_at, top_k))
            p = np.exp(scaled[symbols])
            kept = self.passing(p, total)
            if kept < looked_at or looked_at >= min(top_k, len(scaled)):
                return symbols[:kept]
            looked_at *= 8


def ranked(values: Floats, count: int) -> NDArray[np.intp]:
    """The places of the `count` greatest, greatest first, equal ones by lower place."""
    places: NDArray[Any] = np.arange(len(values))
    if count < len(values):
        places = np.flatnonzero(values >= np.partition(values, -count)[-count])
    order = np.argsort(-values[places], kind="stable")
    return places[order][:count]


# ----------------------------------------------------------------------------
# The next symbol of a draw from one row of log p. Imports no torch.


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


# ----------------------------------------------------------------------------


class Draws:
    """``n`` outputs drawn for one input, which begins with the symbol ``start``.

    The first step has one row, which all draws go on from; then each has its own, until it ends with EOS or has ``limit``
    symbols. ``alternatives``: how many of the most probable symbols are kept of each step.
    """

    def __init__(
        self,
        start: int,
        *,
        eos: int,
        limit: int,
        seed: int,
        n: int = 1,
        filters: Filters | None = None,
        min_length: int = 0,
        alternatives: int = 0,
    ):
        if n < 1:
            raise AnaphoraError(f"n must be at least 1, but is {n}.")
        self.eos, self.filters, self.min_length = eos, filters or Filters(), min_length
        self.alternatives = alternatives
        self.draws = [Draw(limit, seed, place) for place in range(n)]
        self.live = list(self.draws)
        self.symbols = [start]

    @property
    def short(self) -> bool:
        """Whether EOS may not come yet."""
        return bool(self.live) and len(self.live[0].steps) + 1 < self.min_length

    def take(self, picks: Sequence[Picked]) -> list[int]:
        """One more symbol of each live draw, in order; and the row that each of the next rows goes on from."""
        for draw, picked in zip(self.live, picks, strict=True):
            if isinstance(picked, AnaphoraError):
                raise picked
            draw.take(picked, self.eos)
            self.drawn(draw)
        self.live = [draw for draw in self.live if not draw.done]
        self.symbols = [draw.tokens[-1] for draw in self.live]
        parents = [draw.row for draw in self.live]
        for row, draw in enumerate(self.live):
            draw.row = row
        return parents

    def drawn(self, draw: Draw) -> None:
        """Called when ``draw`` has one more symbol, which may end it."""


class Draw:
    """One output being drawn: its symbols so far, its own source of chance, and its row in the batch."""

    def __init__(self, limit: int, seed: int, place: int):
        self.row, self.limit = 0, limit
        self.chance = np.random.Generator(np.random.Philox(key=np.array([seed, place], dtype=np.uint64)))
        self.tokens: list[int] = []
        self.steps: list[float] = []
        self.sampled: list[float] = []
        self.alternatives: list[list[tuple[int, float]]] = []
        self.done = self.finished = False

    def take(self, picked: Pick | None, eos: int) -> None:
        """One more symbol; None: every symbol is forbidden."""
        if picked is None:
            self.done = True
            return
        self.steps.append(picked.log_prob)
        self.sampled.append(math.log(picked.q))
        if picked.alternatives:
            self.alternatives.append(picked.alternatives)
        self.finished = picked.symbol == eos
        if not self.finished:
            self.tokens.append(picked.symbol)
        self.done = self.finished or len(self.steps) == self.limit

    def hypothesis(self, length_penalty: float = 1.0) -> Hypothesis:
        log_prob = sum(self.steps)
        score = normalised(log_prob, len(self.steps), length_penalty)
        return Hypothesis(self.tokens, score, log_prob, self.steps, self.finished, self.sampled)
