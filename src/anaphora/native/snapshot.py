"""What tensors hold at one time, and whether they still hold it, without reading them where that can be.

PyTorch can clone lazily: tensor and clone share their memory until one of them is written to, and the written one is then
moved to memory of its own (copy on write). Every write moves it, as all of PyTorch asks for writable memory in one
place: operations, ``.data``, fused optimizers, compiled programs, storages. So as long as a tensor lies where its lazy
clone lies, it holds what it held. What is written through a raw pointer, as a NumPy array of the same memory has one, is not
seen: a tensor whose memory another object refers to, or whose memory is no ordinary one (shared between processes, mapped from
a file), is compared byte by byte with a copy instead. On a GPU a write must not move a tensor, since captured graphs have its
address: there a :func:`checksum` is compared.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable
from functools import cache

import torch
from torch import Tensor, nn

from anaphora.native.c import address_of, memory_of, plain

_OWN = (
    2  # references to the memory of a tensor that no other object refers to: its own, and that of this check
)


@cache
def _memcmp() -> Callable[[int, int, int], int]:
    function = ctypes.CDLL(None).memcmp
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return function


class Snapshot:
    """The content of tensors; it does not keep them alive. Those without memory to look at are left out.

    Reading a tensor by `Tensor.data_ptr` moves it as a write does: use `address_of` to let it stay.
    """

    def __init__(self, tensors: Iterable[Tensor]):
        given = list(tensors)
        here = [tensor for tensor in given if plain(tensor) and not _elsewhere(tensor)]
        self._here = [*map(weakref.ref, here)]
        self.elsewhere = [weakref.ref(tensor) for tensor in given if _elsewhere(tensor)]
        self.compared: list[tuple[weakref.ref[Tensor], Tensor]] = []  # tensors and copies
        self._clones = [clone for tensor in here if (clone := self._clone(tensor)) is not None]
        self.places = [*map(memory_of, here)]
        self._sums = self._sums_elsewhere()

    @property
    def tensors(self) -> list[Tensor]:
        """Those on the CPU that are still there."""
        return [tensor for one in self._here if (tensor := one()) is not None]

    def _clone(self, tensor: Tensor) -> Tensor | None:
        """Return the lazy clone, which also keeps the memory from being used for something else."""
        with torch.inference_mode(False), torch.no_grad():
            storage = tensor.untyped_storage()
            if torch._C._storage_Use_Count(storage._cdata) == _OWN and storage.nbytes() == tensor.nbytes:
                try:
                    return torch._lazy_clone(tensor.detach())
                except RuntimeError:  # no ordinary memory
                    pass
            copy = tensor.detach().clone(memory_format=torch.contiguous_format)
            self.compared.append((weakref.ref(tensor), copy))
        return None

    def unchanged(self) -> bool:
        """Return True if all tensors, if they have the same layout, hold what they held, to the last bit."""
        return [*map(memory_of, self.tensors)] == self.places and self.same_bytes()

    def same_bytes(self) -> bool:
        """Return True if those hold what they held whose place does not tell."""
        for one, copy in self.compared:
            tensor = one()
            now = None if tensor is None else tensor.detach().contiguous()
            if now is None or _memcmp()(address_of(now), copy.data_ptr(), copy.nbytes):
                return False
        return not self.elsewhere or self._sums_elsewhere() == self._sums

    def _sums_elsewhere(self) -> list[int]:
        """The checksums of the tensors on GPUs that are still there, which are read at once."""
        found = [checksum(tensor) for one in self.elsewhere if (tensor := one()) is not None]
        if len({one.device for one in found}) > 1:
            found = [one.cpu() for one in found]
        sums: list[int] = torch.stack(found).tolist() if found else []
        return sums


def _elsewhere(tensor: Tensor) -> bool:
    """Return True where a write must not move a tensor."""
    return tensor.is_cuda


_AT_ONCE = 1 << 22  # numbers of a checksum that are added up together


@torch.no_grad()
def checksum(tensor: Tensor) -> Tensor:
    """Return Σ_i b_i (2i + 1) mod 2⁶⁴ of the bits b of a tensor in words of 32, which sees signs and order, as one int64 where it lies."""
    with torch.inference_mode(False):
        flat = tensor.detach().contiguous().flatten().view(torch.uint8)
        words = (nn.functional.pad(flat, (0, -len(flat) % 4)) if len(flat) % 4 else flat).view(torch.int32)
        found = torch.zeros((), dtype=torch.int64, device=tensor.device)
        for first in range(0, len(words), _AT_ONCE):
            part = words[first : first + _AT_ONCE].long()
            places = torch.arange(first, first + len(part), dtype=torch.int64, device=tensor.device)
            found += (part * (2 * places + 1)).sum()
        return found
