"""The batch first or the time first: the same numbers in another order of memory."""

from __future__ import annotations

import torch
from torch import Tensor

_WIDE = 16  # bytes that a GPU moves at a time


def transposed(value: Tensor, live: Tensor | None = None) -> Tensor:
    """``(B, T, ·)`` as ``(T, B, ·)`` in this order of memory, or back; nothing is moved where it lies so already.

    ``live`` ``(T, B, 1)``: what of the result is real; the rest may be anything and becomes zero.
    """
    value = value.resolve_neg()
    found = value.transpose(0, 1)
    if live is None and found.is_contiguous():
        return found
    if wide(value):
        found = found.view(torch.complex128)  # sixteen bytes each, only moved
    if live is None:
        return found.contiguous().view(value.dtype)
    made = torch.empty(found.shape, dtype=found.dtype, device=value.device)
    return torch.where(live, found, found.new_zeros(()), out=made).view(value.dtype)


def wide(value: Tensor) -> int:
    """How many numbers of ``(·, ·, ·)`` a GPU moves at a time; 0 where its rows do not begin and end at such places."""
    numbers = _WIDE // value.element_size()
    places = (value.shape[2], value.stride(0), value.stride(1), value.storage_offset())
    return numbers if value.stride(2) == 1 and not any(place % numbers for place in places) else 0
