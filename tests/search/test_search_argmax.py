"""Greedy symbols without a look at each item: NaN is an error, however short the outputs are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from anaphora.search._beam import STRIDE, greedy_symbols
from anaphora.search._hypothesis import NotANumberError


@pytest.mark.parametrize("longest", [1, STRIDE - 1, STRIDE, STRIDE + 1])
def test_numbers_that_are_none_are_an_error(longest: int) -> None:
    def step(symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        return torch.full((len(symbols), 5), torch.nan), state

    with pytest.raises(NotANumberError, match="weights may be damaged"):
        greedy_symbols(step, None, start=torch.zeros(3, dtype=torch.long), eos=4, limits=[longest] * 3)
