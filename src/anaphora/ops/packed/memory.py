"""Memory for weights that every step reads from first to last."""

from __future__ import annotations

import contextlib
import mmap

import torch
from torch import Tensor

PAGE = 1 << 21
"""Bytes of a large page."""


def large_pages(count: int) -> Tensor:
    """Zeros ``(count,)`` of float32, at a multiple of a large page and in large pages where the system has them.

    In small pages a matrix that no cache holds is read at half the speed: the processor looks up every page and its prefetchers
    stop at the end of each. The rest of a page that is less than half full stays in small ones.
    """
    size = 4 * count
    if size < PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(count)
    held = mmap.mmap(-1, size + PAGE)
    whole = torch.frombuffer(held, dtype=torch.uint8)
    begin = -whole.data_ptr() % PAGE
    with contextlib.suppress(OSError):  # a kernel without them
        held.madvise(mmap.MADV_HUGEPAGE, begin, (size + PAGE // 2) // PAGE * PAGE)
    return whole[begin : begin + size].view(torch.float32)
