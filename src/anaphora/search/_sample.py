"""Sampling: outputs drawn at random from the model's own distribution, or from a filtered one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search._candidates import check_shape
from anaphora.search._draws import Draw, Draws
from anaphora.search._filters import Filters
from anaphora.search._hypothesis import NBest, Step, lengths_of
from anaphora.search._picking import Wanted, pick
from anaphora.search._running import Choose, Running
from anaphora.settings.search import USUAL

__all__ = ["Draw", "Draws", "Filters", "drawing", "sample"]


@torch.no_grad()
def sample(
    step: Step,
    state: Any,
    *,
    start: Tensor,
    eos: int,
    max_length: int | Tensor,
    min_length: int = USUAL.min_length,
    temperature: float = USUAL.temperature,
    top_k: int = USUAL.top_k,
    top_p: float = USUAL.top_p,
    min_p: float = USUAL.min_p,
    seeds: Sequence[int] | Tensor,
    n: int = 1,
    length_penalty: float = USUAL.length_penalty,
    logits: bool = False,
) -> list[NBest]:
    """`n` outputs for each item of `start` (items,), each symbol drawn from q(· | y₁ … yₜ₋₁) until EOS.

        q(i) ∝ p(i)^(1/T)  for the symbols that pass top_k, top_p and min_p (see `Filters`), else 0

    `seeds` has one number per item. Draw j of an item uses one uniform number per symbol, made from
    (seed, j, place) alone: it does not change with the rest of the batch, nor with n. Each hypothesis
    keeps `steps`, log p under the model without filters, and `sampled`, log q. The lists are in the order
    of drawing, so that they stay independent samples. Lengths count EOS; below `min_length` it is not drawn.
    `logits`: step returns scores that are not normalised yet.

    `step`, `state`, `eos`, `max_length` and `length_penalty` are those of `beam`; `temperature` is T.
    Raises an `AnaphoraError` for filters out of range and where `seeds` are not one whole number for each item.

    >>> chain = torch.tensor([[0.0, 0.9, 0.1], [0.0, 0.2, 0.8], [0.0, 0.0, 1.0]]).log()         # p(next | last); 2 is EOS
    >>> step = lambda symbols, state: (chain[symbols], state)
    >>> found = an.search.sample(step, None, start=torch.tensor([0]), eos=2, max_length=5, seeds=[1], n=3)
    >>> len(found[0]), all(one.finished for one in found[0])
    (3, True)
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


def _seeds(seeds: Sequence[int] | Tensor, items: int) -> list[int]:
    numbers = [int(seed) for seed in (seeds.tolist() if isinstance(seeds, Tensor) else seeds)]
    if len(numbers) != items or not all(0 <= seed < 2**64 for seed in numbers):
        raise AnaphoraError(f"seeds must be {items} whole numbers from 0 to 2⁶⁴ − 1, one for each item.")
    return numbers
