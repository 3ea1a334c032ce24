"""What the parts of a step sum up to, and how it comes to be read: a GPU's numbers are fetched once, all together."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from anaphora.training.distributed import Group


class Numbers:
    """What a step found: some of it plain numbers, some in a GPU's memory, from where it is read in one go."""

    def __init__(self, total: Tensor | float, count: Tensor | float, stop: Tensor | float, norm: Tensor):
        self.total, self.count, self.stop, self.norm = total, count, stop, norm
        self._plain = [None if isinstance(value, Tensor) else float(value) for value in self._values()]
        self._here: Tensor | None = None
        self._known: Any = None

    @property
    def nothing(self) -> bool:
        """Whether it is known without reading that there were no symbols."""
        return not isinstance(self.count, Tensor) and self.count == 0

    def send(self) -> None:
        """Begin to read; what the GPU is given afterwards, it does while the numbers travel."""
        tensors = [value for value in self._values() if isinstance(value, Tensor)]
        if len({value.dtype for value in tensors}) > 1:
            wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64
            tensors = [value.to(wide) for value in tensors]
        self._here = together = torch.stack(tensors)
        if together.is_cuda:
            self._here, self._known = _arrival(len(tensors), together.dtype, together.device)
            self._here.copy_(together, non_blocking=True)
            self._known.record()

    def read(self) -> list[float]:
        """total, count, stop and norm, when they have arrived."""
        if self._here is None:
            self.send()
        assert self._here is not None
        if self._known is not None:
            self._known.synchronize()
        arrived = iter(self._here.tolist())
        return [next(arrived) if value is None else value for value in self._plain]

    def forget(self) -> None:
        """Let go of the GPU's numbers, once they were sent: their memory may be that of a captured graph, which runs again."""
        self.total = self.count = self.stop = 0.0
        self.norm = torch.zeros(())

    def _values(self) -> tuple[Tensor | float, ...]:
        return self.total, self.count, self.stop, self.norm


@lru_cache
def _arrival(count: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Any]:
    """Where so many numbers of a GPU arrive, and what says that they have: the same at every step, which reads them at once."""
    return torch.empty(count, dtype=dtype, pin_memory=True), torch.cuda.Event()  # type: ignore[no-untyped-call]


class Sums:
    """Losses and counts of a step's parts, added up where they are: what is a plain number stays one."""

    def __init__(self, wide: torch.dtype):
        self._wide = wide
        self._total: Tensor | float = 0.0
        self._count: Tensor | int = 0

    def add(self, total: Tensor, count: Tensor | int) -> None:
        known = self._total
        self._total = known.to(self._wide) + total if isinstance(known, Tensor) else total
        self._count = self._count + count

    def of_all(self, group: Group, asked: bool, norm: Tensor) -> Numbers:
        """The sums over all processes, how many of those were asked to stop, and the gradient's ``norm``."""
        if group.world == 1:
            return Numbers(self._total, self._count, float(asked), norm)
        sums = torch.zeros(3, dtype=self._wide, device=group.device)
        sums[0] += self._total
        sums[1] += self._count
        sums[2] += asked
        total, count, stop = group.sum(sums).unbind()
        return Numbers(total, count, stop, norm)
