"""The batch first or the time first: the same numbers, wherever they lie."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from anaphora.engine.ragged import transposed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("start", [0, 1])
def test_nothing_but_the_order_changes(dtype: torch.dtype, width: int, start: int) -> None:
    """Also when a row is no multiple of what moves at a time, or does not begin at one."""
    whole = torch.randn(4, 5, width + start).to(dtype)
    for value in (whole[:, :, start:], whole[1:], whole.transpose(0, 1)):
        found = transposed(value)
        assert found.is_contiguous()
        assert found.dtype == dtype
        assert torch.equal(found, value.transpose(0, 1))


@pytest.mark.parametrize("width", [3, 8])
def test_what_is_not_live_becomes_zero_whatever_it_was(width: int) -> None:
    value = torch.randn(3, 5, width)
    lengths = torch.tensor([5, 0, 2])
    live = (torch.arange(5)[:, None] < lengths).unsqueeze(-1)
    ended = ~live.transpose(0, 1).expand(3, 5, width)
    value[ended] = float("nan")
    expected = torch.where(ended, torch.zeros(()), value).transpose(0, 1)
    assert torch.equal(transposed(value, live), expected)
    assert torch.equal(transposed(expected, live.transpose(0, 1)), expected.transpose(0, 1))


def test_what_lies_so_already_is_not_moved() -> None:
    value = torch.randn(4, 5, 8)
    found: Tensor = transposed(value.transpose(0, 1))
    assert found.data_ptr() == value.data_ptr()
