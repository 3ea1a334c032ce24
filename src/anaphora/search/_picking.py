"""The next symbol of many draws, by inversion: the first whose cumulated q exceeds a uniform number.

On a CPU rows are read where they are. From a GPU only what decides leaves the device: sums of blocks of symbols and the block
in which the number falls, or the most probable symbols where a filter asks for these. Either way the sums that decide
run on the host in double precision and in one order, whatever the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.errors import AnaphoraError
from anaphora.search._candidates import check_greatest
from anaphora.search._filters import Filters, Floats, ranked

BLOCK = 256  # symbols whose mass is summed on the device
RANKS = 1024  # of a filtered row that leave the device; a flatter distribution makes the whole row leave


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


def pick(log_probs: Tensor, wanted: Sequence[Wanted]) -> list[Picked]:
    """A symbol for each of ``wanted``, from log p ``(rows, V)``."""
    if log_probs.is_cuda:
        return pick_on_device(log_probs, wanted)
    table: Floats = log_probs.double().numpy()
    return [_from_row(table[each.row], each) for each in wanted]


def _from_row(log_probs: Floats, wanted: Wanted) -> Picked:
    refused = _refused(float(log_probs.max()))
    if refused is not None:
        return refused[0]
    symbols, q = wanted.filters(log_probs)
    place = _inverted(q, wanted.chance.random())
    others = (
        [(int(i), log_probs[i]) for i in ranked(log_probs, wanted.alternatives)]
        if wanted.alternatives
        else []
    )
    return _picked(int(symbols[place]), log_probs[symbols[place]], q[place], others)


def _refused(greatest: float) -> tuple[AnaphoraError | None] | None:
    """What is said of a row that cannot be drawn from; None where it can."""
    try:
        check_greatest(greatest)
    except AnaphoraError as error:
        return (error,)
    return (None,) if greatest == -math.inf else None


def _inverted(mass: Floats, number: float) -> int:
    """The first place whose cumulated mass exceeds ``number`` (from 0 to 1) of the whole."""
    cumulated = np.cumsum(mass)
    return _exceeding(cumulated, number * cumulated[-1])


def _exceeding(cumulated: Floats, number: float) -> int:
    place = int(np.searchsorted(cumulated, number, side="right"))
    # The product may round up to the whole mass: then it is the last place that has any.
    return min(place, int(np.searchsorted(cumulated, cumulated[-1], side="left")))


def _picked(symbol: int, log_prob: float, q: float, others: list[tuple[int, float]]) -> Pick:
    kept = [(other, min(float(value), 0.0)) for other, value in others]
    return Pick(symbol, min(float(log_prob), 0.0), float(q), kept)


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
        refused = _refused(float(sums[each.row, 0]))
        if refused is not None:
            found[number] = refused[0]
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
        block = _exceeding(cumulated, target)
        blocks.append(block)
        left.append((target - (cumulated[block - 1] if block else 0.0), cumulated[-1]))
    at = torch.tensor([[wanted[number].row for number in numbers], blocks]).to(filled.device)
    parts: Floats = filled.view(len(filled), -1, BLOCK)[at[0], at[1]].double().cpu().numpy()
    for number, block, (target, total), log_probs in zip(numbers, blocks, left, parts, strict=True):
        each = wanted[number]
        p = np.exp((log_probs - sums[each.row, 0]) / each.filters.temperature)
        place = _exceeding(np.cumsum(p), target)
        found[number] = _picked(block * BLOCK + place, log_probs[place], p[place] / total, [])


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
            found[number] = _from_row(log_probs[each.row].double().cpu().numpy(), each)
            continue
        q = p[:kept] / p[:kept].sum()
        place = _inverted(q, each.chance.random())
        found[number] = _picked(int(symbols[row, place]), ranks[row, place], q[place], [])


def _with_alternatives(log_probs: Tensor, wanted: Sequence[Wanted], found: list[Picked]) -> list[Picked]:
    """What was found, with the most probable symbols in its place where they were asked for."""
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
