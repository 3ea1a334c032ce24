"""The lean search for one path gives what the beam of width 1 gives, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from anaphora.search import beam

EOS = 1


def _step(table: Tensor) -> Any:
    def step(symbols: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        item, place = state
        return table[item, place, symbols], (item, place + 1)

    return step


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("normalisation", ["power", "gnmt", "reward"])
def test_the_lean_path_is_that_of_a_beam_of_one(normalisation: Any, logits: bool) -> None:
    torch.manual_seed(3)
    items, symbols = 12, 7
    table = torch.randn(items, 9, symbols, symbols) * 2
    table[4, 3:] = -torch.inf  # item 4 cannot go on after three symbols
    table[5, 0] = -torch.inf  # item 5 cannot begin
    if not logits:
        table = table.log_softmax(-1).nan_to_num(nan=-torch.inf)
    else:
        table[4, 3:], table[5, 0] = 0.0, 0.0
    start, limits = torch.zeros(items, dtype=torch.long), torch.arange(items) % 6 + 4
    state = (torch.arange(items), torch.zeros(items, dtype=torch.long))
    for least in (0, 3):
        options: dict[str, Any] = {
            "start": start, "eos": EOS, "width": 1, "max_length": limits, "min_length": least,
            "length_penalty": 0.7, "normalisation": normalisation, "logits": logits,
        }  # fmt: skip
        lean = beam(_step(table), state, **options)
        whole = beam(_step(table), state, **options, keep_tree=True)
        assert all(found.tree is None for found in lean)
        assert [list(found) for found in lean] == [list(found) for found in whole]
        assert {found[0].finished for found in lean} == {True, False}
