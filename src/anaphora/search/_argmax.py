"""The most probable symbol at every step, for many items at once and without a look at each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.search._hypothesis import Step
from anaphora.search._numbers import NotANumberError
from anaphora.search._rows import select_rows

STRIDE = 8
"""Steps between two looks at which items have ended; those then leave the batch."""


@torch.no_grad()
def greedy_symbols(
    step: Step, state: Any, *, start: Tensor, eos: int, limits: Sequence[int]
) -> list[list[int]]:
    """The symbols that `beam` of width 1 finds for each item, without EOS; log p is not computed.

    start ``(items,)``; limits: most symbols of each item, its EOS counted. ``step`` may give logits or log p. On a GPU nothing
    waits for the host but one number in every `STRIDE` steps.
    """
    left = torch.tensor(list(limits), device=start.device)
    rows = torch.arange(len(left), device=start.device)
    found = torch.full((len(left), max(limits, default=0)), eos, dtype=torch.int64, device=start.device)
    ended, symbols = left <= 0, start
    for place in each_step(range(found.shape[1])):
        scores, state = step(symbols, state)
        symbols = scores.argmax(-1)
        found[rows, place] = torch.where(ended, eos, symbols)
        ended = ended | (symbols == eos) | (left <= place + 1)
        if place % STRIDE == STRIDE - 1 or place == found.shape[1] - 1:
            if bool(scores.isnan().any()):
                raise NotANumberError(
                    "a step of the search gave numbers that are none; the weights may be damaged."
                )
            alive = torch.nonzero(~ended)[:, 0]
            if not len(alive):
                break
            if 2 * len(alive) <= len(rows):
                state, rows, symbols = select_rows(state, alive), rows[alive], symbols[alive]
                ended, left = ended[alive], left[alive]
    return [row[: row.index(eos)] if eos in row else row for row in found.tolist()]
