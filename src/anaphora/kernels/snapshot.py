"""What tensors hold at one time, and whether they still hold it, without reading them.

PyTorch can clone lazily: tensor and clone share their memory until one of them is written to, and the written one is then
moved to memory of its own (copy on write). Every write moves it, as all of PyTorch asks for writable memory in one
place: operations, ``.data``, fused optimizers, compiled programs, storages. So as long as a tensor lies where its lazy
clone lies, it holds what it held. What is written through a raw pointer, as a NumPy array of the same memory has one, is not
seen: a tensor whose memory another object refers to, or whose memory is no ordinary one (shared between processes, mapped from
a file), is compared byte by byte with a copy instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch
from torch import Tensor

from anaphora.native.c import address_of, memory_of

_OWN = (
    2  # references to the memory of a tensor that no other object refers to: its own, and that of this check
)


@cache
def _memcmp() -> Callable[[int, int, int], int]:
    function = ctypes.CDLL(None).memcmp
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return function


class Snapshot:
    """The content of tensors on the CPU.

    Reading a tensor by `Tensor.data_ptr` moves it as a write does: use `address_of` to let it stay.
    """

    def __init__(self, tensors: Iterable[Tensor]):
        self.tensors = list(tensors)
        self.compared: list[tuple[Tensor, Tensor]] = []  # tensors and copies
        self._clones = [clone for t in self.tensors if (clone := self._clone(t)) is not None]
        self.places = [*map(memory_of, self.tensors)]

    def _clone(self, tensor: Tensor) -> Tensor | None:
        """The lazy clone, which also keeps the memory from being used for something else."""
        with torch.inference_mode(False), torch.no_grad():
            storage = tensor.untyped_storage()
            if torch._C._storage_Use_Count(storage._cdata) == _OWN and storage.nbytes() == tensor.nbytes:
                try:
                    return torch._lazy_clone(tensor.detach())
                except RuntimeError:  # no ordinary memory
                    pass
            self.compared.append((tensor, tensor.detach().clone(memory_format=torch.contiguous_format)))
        return None

    def unchanged(self) -> bool:
        """Whether all tensors, if they have the same layout, hold what they held, to the last bit."""
        if [*map(memory_of, self.tensors)] != self.places:
            return False
        return not self.compared or same_bytes(self.compared)


def same_bytes(pairs: Sequence[tuple[Tensor, Tensor]]) -> bool:
    """Whether each tensor holds what its contiguous copy does."""
    for tensor, copy in pairs:
        now = tensor.detach().contiguous()
        if _memcmp()(address_of(now), copy.data_ptr(), copy.nbytes):
            return False
    return True
