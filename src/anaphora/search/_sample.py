"""Sampling: outputs drawn at random from the model's own distribution, or from a filtered one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search._candidates import check_greatest, check_shape
from anaphora.search._hypothesis import Hypothesis, NBest, Step, lengths_of, normalised
from anaphora.search._running import Choose, Running

Floats = NDArray[np.float64]
_FIRST_LOOK = 64  # symbols ranked at first; a flatter distribution makes the filters look at eight times more


@torch.no_grad()
def sample(
    step: Step,
    state: Any,
    *,
    start: Tensor,
    eos: int,
    max_length: int | Tensor,
    min_length: int = 0,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seeds: Sequence[int] | Tensor,
    n: int = 1,
    length_penalty: float = 1.0,
    logits: bool = False,
) -> list[NBest]:
    """`n` outputs for each item of `start` (items,), each symbol drawn from q(· | y₁ … yₜ₋₁) until EOS.

        q(i) ∝ p(i)^(1/T)  for the symbols that pass top_k, top_p and min_p (see `Filters`), else 0

    `seeds` has one number per item. Draw j of an item uses one uniform number per symbol, made from
    (seed, j, place) alone: it does not change with the rest of the batch, nor with n. Each hypothesis
    keeps `steps`, log p under the model without filters, and `sampled`, log q. The lists are in the order
    of drawing, so that they stay independent samples. Lengths count EOS; below `min_length` it is not drawn.
    `logits`: step returns scores that are not normalised yet.
    """
    filters = Filters(temperature, top_k, top_p, min_p)
    limits = lengths_of(max_length, len(start), min_length)
    items = [
        Draws(symbol, eos=eos, limit=limit, seed=seed, n=n, filters=filters, min_length=min_length)
        for symbol, limit, seed in zip(start.tolist(), limits, _seeds(seeds, len(start)), strict=True)
    ]
    running = Running(step, drawing(logits), start.device)
    running.join(items, state)
    while running.groups:
        running.advance()
    return [NBest(draw.hypothesis(length_penalty) for draw in item.draws) for item in items]


def drawing(logits: bool = False) -> Choose[Draws]:
    """How each group of `Draws` in a `Running` batch gets its next symbols; ``logits``: scores are not normalised yet."""

    def choose(scores: Tensor, groups: Sequence[Draws]) -> list[list[int]]:
        log_probs = scores.float().log_softmax(-1) if logits else scores
        table = _on_host(log_probs, sum(len(group.symbols) for group in groups))
        parents, at = [], 0
        for group in groups:
            end = at + len(group.symbols)
            parents.append(group.extend(table[at:end]))
            at = end
        return parents

    return choose


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

    def extend(self, log_probs: Floats) -> list[int]:
        """One more symbol of each draw, from log p ``(rows, V)``; and the row that each of the next rows goes on from."""
        for draw in self.live:
            draw.extend(self._allowed(log_probs[draw.row], draw), self.filters, self.eos, self.alternatives)
            self.drawn(draw)
        self.live = [draw for draw in self.live if not draw.done]
        self.symbols = [draw.tokens[-1] for draw in self.live]
        parents = [draw.row for draw in self.live]
        for row, draw in enumerate(self.live):
            draw.row = row
        return parents

    def drawn(self, draw: Draw) -> None:
        """Called when ``draw`` has one more symbol; it may end it."""

    def _allowed(self, log_probs: Floats, draw: Draw) -> Floats:
        if len(draw.steps) + 1 < self.min_length:
            log_probs = log_probs.copy()
            log_probs[self.eos] = -math.inf
        check_greatest(float(log_probs.max()))
        return log_probs


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

    def extend(self, log_probs: Floats, filters: Filters, eos: int, alternatives: int = 0) -> None:
        """One more symbol by inversion: the first whose cumulated q exceeds a uniform number."""
        if log_probs.max() == -math.inf:  # every symbol is forbidden
            self.done = True
            return
        symbols, q = filters(log_probs)
        cumulated = np.cumsum(q)
        place = int(np.searchsorted(cumulated, self.chance.random() * cumulated[-1], side="right"))
        place = min(place, len(q) - 1)  # the product may round up to the whole mass
        symbol = int(symbols[place])
        self.steps.append(min(float(log_probs[symbol]), 0.0))
        self.sampled.append(math.log(q[place]))
        if alternatives:
            best = ranked(log_probs, alternatives)
            self.alternatives.append([(int(i), min(float(log_probs[i]), 0.0)) for i in best])
        self.finished = symbol == eos
        if not self.finished:
            self.tokens.append(symbol)
        self.done = self.finished or len(self.steps) == self.limit

    def hypothesis(self, length_penalty: float = 1.0) -> Hypothesis:
        log_prob = sum(self.steps)
        score = normalised(log_prob, len(self.steps), length_penalty)
        return Hypothesis(self.tokens, score, log_prob, self.steps, self.finished, self.sampled)


def _on_host(log_probs: Tensor, rows: int) -> Floats:
    """The rows in double precision, where sums run in the same order whatever the batch and the device."""
    check_shape(log_probs, rows)
    table: Floats = log_probs.cpu().double().numpy()
    return table


def _seeds(seeds: Sequence[int] | Tensor, items: int) -> list[int]:
    numbers = [int(seed) for seed in (seeds.tolist() if isinstance(seeds, Tensor) else seeds)]
    if len(numbers) != items or not all(0 <= seed < 2**64 for seed in numbers):
        raise AnaphoraError(f"seeds must be {items} whole numbers from 0 to 2⁶⁴ − 1, one for each item.")
    return numbers


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
        if not top_k and self.top_p == 1 and self.min_p == 0:
            symbols = np.flatnonzero(np.exp(scaled))
        else:
            symbols = self._passing(scaled, top_k or len(scaled))
        mass = np.exp(scaled[symbols])
        return symbols, mass / mass.sum()

    def _passing(self, scaled: Floats, top_k: int) -> NDArray[np.intp]:
        """Each filter keeps the ranks before some point; only as many ranks are sorted as it takes."""
        total = np.exp(scaled).sum() if self.top_p < 1 else np.inf
        looked_at = _FIRST_LOOK
        while True:
            symbols = ranked(scaled, min(looked_at, top_k))
            p = np.exp(scaled[symbols])
            before = np.cumsum(p) - p
            passes = (p > 0) & (before < self.top_p * total) & (p >= self.min_p * p[0])
            kept = len(symbols) if passes.all() else int(passes.argmin())
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
