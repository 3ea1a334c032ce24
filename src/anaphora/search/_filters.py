"""Which symbols may be drawn, and how probably each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError

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
