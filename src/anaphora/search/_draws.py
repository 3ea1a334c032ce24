"""Outputs drawn at random, symbol by symbol. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.search._filters import Filters
from anaphora.search._hypothesis import Hypothesis, normalised
from anaphora.search._picks import Pick, Picked


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
