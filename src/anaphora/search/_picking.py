"""The next symbol of many draws, by inversion: the first whose cumulated q exceeds a uniform number.

On a CPU rows are read where they are. From a GPU only what decides leaves the device: sums of blocks of symbols and the block
in which the number falls, or the most probable symbols where a filter asks for these. Either way the sums that decide
run on the host in double precision and in one order, whatever the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.search._filters import Floats
from anaphora.search._picks import Pick, Picked, Wanted, exceeding, from_row, inverted, pick_of, refusal

__all__ = ["Pick", "Picked", "Wanted", "pick", "pick_on_device"]

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
