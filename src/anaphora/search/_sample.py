"""Sampling: outputs drawn at random from the model's own distribution, or from a filtered one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.errors import AnaphoraError
from anaphora.search._draws import (
    Draws,
    Filters,
    Floats,
    Pick,
    Picked,
    Wanted,
    exceeding,
    from_row,
    inverted,
    pick_of,
    refusal,
)
from anaphora.search._hypothesis import NBest, Step, lengths_of
from anaphora.search._rows import Choose, Running, check_shape
from anaphora.settings.search import USUAL


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


# ----------------------------------------------------------------------------
# The next symbol of many draws, by inversion: the first whose cumulated q exceeds a uniform number.
#
# On a CPU rows are read where they are. From a GPU only what decides leaves the device: sums of blocks of symbols and the block
# in which the number falls, or the most probable symbols where a filter asks for these. Either way the sums that decide
# run on the host in double precision and in one order, whatever the batch.

BLOCK = 256  # symbols whose mass is summed on the device
RANKS = 1024  # of a filtered row that leave the device; a flatter distribution makes the whole row leave


def pick(log_probs: Tensor, wanted: Sequence[Wanted]) -> list[Picked]:
    """A symbol for each of ``wanted``, from log p ``(rows, V)``."""
    if log_probs.is_cuda:
        return pick_on_device(log_probs, wanted)
    table: Floats = log_probs.double().numpy()
    return [from_row(table[each.row], each) for each in wanted]


def pick_on_device(log_probs: Tensor, wanted: Sequence[Wanted]) -> list[Picked]:
    """As `pick`, for log p on any device."""
    rows, symbols = log_probs.shape
    heat = np.ones(rows)
    for each in wanted:
        heat[each.row] = each.filters.temperature or 1.0
    temperature = torch.from_numpy(heat).to(log_probs.device)[:, None]
    filled = F.pad(log_probs, (0, -symbols % BLOCK), value=-math.inf)
    greatest = log_probs.amax(1, keepdim=True).double()
    top = torch.where(greatest == -math.inf, 0.0, greatest)
    mass = ((filled.double() - top) / temperature).exp().view(rows, -1, BLOCK).sum(-1)
    sums: Floats = torch.cat((greatest, mass), 1).cpu().numpy()
    found: list[Picked] = [None] * len(wanted)
    plain: list[int] = []
    filtered: list[int] = []
    for number, each in enumerate(wanted):
        why = refusal(float(sums[each.row, 0]))
        if why is not None:
            found[number] = why[0]
        elif each.filters.plain:
            plain.append(number)
        else:
            filtered.append(number)
    _by_blocks(filled, sums, wanted, plain, found)
    _by_ranks(log_probs, sums, wanted, filtered, found)
    return _with_alternatives(log_probs, wanted, found)


def _by_blocks(
    filled: Tensor, sums: Floats, wanted: Sequence[Wanted], numbers: list[int], found: list[Picked]
) -> None:
    """Symbols among all of a row: first the block, then the place in it."""
    if not numbers:
        return
    blocks, left = [], []
    for number in numbers:
        cumulated = np.cumsum(sums[wanted[number].row, 1:])
        target = wanted[number].chance.random() * cumulated[-1]
        block = exceeding(cumulated, target)
        blocks.append(block)
        left.append((target - (cumulated[block - 1] if block else 0.0), cumulated[-1]))
    at = torch.tensor([[wanted[number].row for number in numbers], blocks]).to(filled.device)
    parts: Floats = filled.view(len(filled), -1, BLOCK)[at[0], at[1]].double().cpu().numpy()
    for number, block, (target, total), log_probs in zip(numbers, blocks, left, parts, strict=True):
        each = wanted[number]
        p = np.exp((log_probs - sums[each.row, 0]) / each.filters.temperature)
        place = exceeding(np.cumsum(p), target)
        found[number] = pick_of(block * BLOCK + place, log_probs[place], p[place] / total, [])


def _by_ranks(
    log_probs: Tensor, sums: Floats, wanted: Sequence[Wanted], numbers: list[int], found: list[Picked]
) -> None:
    """Symbols that pass a filter: the most probable ones, as far as they have to be looked at."""
    if not numbers:
        return
    rows = sorted({wanted[number].row for number in numbers})
    most = min(log_probs.shape[1], max(_looked_at(wanted[number]) for number in numbers))
    values, places = log_probs[rows].topk(most, -1)
    ranks: Floats = values.double().cpu().numpy()
    symbols = places.cpu().numpy()
    for number in numbers:
        each, row = wanted[number], rows.index(wanted[number].row)
        filters, size = each.filters, len(ranks[row])
        top_k = min(
            1 if filters.temperature == 0 else filters.top_k or log_probs.shape[1], log_probs.shape[1]
        )
        p = np.exp((ranks[row] - sums[each.row, 0]) / (filters.temperature or 1.0))[:top_k]
        kept = filters.passing(p, float(sums[each.row, 1:].sum()))
        if kept == size < top_k:  # more may pass
            found[number] = from_row(log_probs[each.row].double().cpu().numpy(), each)
            continue
        q = p[:kept] / p[:kept].sum()
        place = inverted(q, each.chance.random())
        found[number] = pick_of(int(symbols[row, place]), ranks[row, place], q[place], [])


def _with_alternatives(log_probs: Tensor, wanted: Sequence[Wanted], found: list[Picked]) -> list[Picked]:
    """What was found, with the most probable symbols in its place on request."""
    rows = sorted({each.row for each in wanted if each.alternatives})
    if not rows:
        return found
    most = min(log_probs.shape[1], max(each.alternatives for each in wanted))
    values, places = (x.tolist() for x in log_probs[rows].topk(most, -1))
    complete = []
    for each, picked in zip(wanted, found, strict=True):
        if each.alternatives and isinstance(picked, Pick):
            row, count = rows.index(each.row), each.alternatives
            others = zip(places[row][:count], values[row][:count], strict=True)
            picked = picked._replace(alternatives=[(symbol, min(value, 0.0)) for symbol, value in others])
        complete.append(picked)
    return complete


def _looked_at(wanted: Wanted) -> int:
    """How many ranks decide, as far as that is known."""
    filters = wanted.filters
    most = 1 if filters.temperature == 0 else filters.top_k or RANKS
    return min(most, RANKS)
