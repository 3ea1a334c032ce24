"""Sampling: outputs drawn at random from the model's own distribution, or from a filtered one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search._candidates import check_shape
from anaphora.search._filters import Filters
from anaphora.search._hypothesis import Hypothesis, NBest, Step, lengths_of, normalised
from anaphora.search._picking import Pick, Picked, Wanted, pick
from anaphora.search._running import Choose, Running


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
        wanted: list[Wanted] = []
        withheld, row = [], 0
        for group in groups:
            wanted += [
                Wanted(row + draw.row, draw.chance, group.filters, group.alternatives) for draw in group.live
            ]
            if group.short:
                withheld += [(place, group.eos) for place in range(row, row + len(group.symbols))]
            row += len(group.symbols)
        check_shape(log_probs, row)
        if withheld:
            log_probs = log_probs.clone()
            rows, ends = zip(*withheld, strict=True)
            log_probs[list(rows), list(ends)] = -math.inf
        picks = iter(pick(log_probs, wanted))
        return [group.take([next(picks) for _ in group.live]) for group in groups]

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


def _seeds(seeds: Sequence[int] | Tensor, items: int) -> list[int]:
    numbers = [int(seed) for seed in (seeds.tolist() if isinstance(seeds, Tensor) else seeds)]
    if len(numbers) != items or not all(0 <= seed < 2**64 for seed in numbers):
        raise AnaphoraError(f"seeds must be {items} whole numbers from 0 to 2⁶⁴ − 1, one for each item.")
    return numbers
