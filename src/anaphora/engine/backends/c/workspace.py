"""Large buffers used again: fresh memory costs a page fault every 4 KiB, which can exceed the arithmetic.

Buffers that only the engine sees are taken here and given back when their last user is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

import torch
from torch import Tensor

LIMIT = 512 << 20  # bytes held for later use, at most
SMALL = 1 << 14  # elements; below this the allocator does as well

_free: dict[tuple[torch.dtype, int], list[Tensor]] = {}
_held = 0
_lock = RLock()  # one that may be taken twice: a `Lease` can be collected while this thread holds it


def take(like: Tensor, count: int) -> Tensor:
    """An uninitialised buffer of ``count`` elements of the type of ``like``, which must lie on the CPU."""
    global _held
    if count < SMALL:
        return like.new_empty(count)
    size = _rounded(count)
    with _lock:
        waiting = _free.get((like.dtype, size))
        if waiting:
            buffer = waiting.pop()
            _held -= buffer.nbytes
            return buffer[:count]
    return like.new_empty(size)[:count]


def give_back(buffers: Sequence[Tensor]) -> None:
    """Let other calls use these buffers; the caller may not look at them any more."""
    global _held
    for view in buffers:
        whole = view._base if view._base is not None else view
        if whole.numel() < SMALL:
            continue
        with _lock:
            if _held + whole.nbytes <= LIMIT:
                _held += whole.nbytes
                _free.setdefault((whole.dtype, whole.numel()), []).append(whole)


def held() -> int:
    """Bytes that wait for later use."""
    return _held


def clear() -> None:
    """Return everything to the system."""
    global _held
    with _lock:
        _free.clear()
        _held = 0


def _rounded(count: int) -> int:
    """Up to a multiple of an eighth of the next lower power of two, so that similar sizes share buffers."""
    unit = 1 << max(0, count.bit_length() - 4)
    return -(-count // unit) * unit


class Lease:
    """Buffers on loan until this object goes."""

    def __init__(self, buffers: Sequence[Tensor]):
        self.buffers = list(buffers)

    def __del__(self) -> None:
        give_back(self.buffers)
