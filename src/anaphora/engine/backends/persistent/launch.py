"""One kernel for certain sizes on one GPU: compiled at its first run, and launched."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from anaphora.engine.backends.persistent.columns import Program
from anaphora.engine.backends.persistent.layout import Layout, Packed
from anaphora.engine.backends.persistent.source import NAME, Kernel
from anaphora.engine.backends.persistent.tiling import Tiling, cost
from anaphora.native.cuda import Loaded, machine_code, watch

Arrays = dict[str, Tensor | None]


@dataclass
class Pass:
    """One pass for certain sizes on one GPU: its kernel, compiled when it is first run."""

    kernel: Kernel
    device: torch.device
    architecture: str
    sms: int

    @cached_property
    def loaded(self) -> Loaded:
        code = machine_code(self.kernel.source, self.architecture, "steps")
        tiling = self.kernel.tiling
        return Loaded(code, NAME, tiling.shared_memory, 32 * tiling.warps, tiling.cluster)

    @cached_property
    def matrices(self) -> list[Packed]:
        return Layout.matrices(self.kernel.program)

    @property
    def tiling(self) -> Tiling:
        return self.kernel.tiling

    @property
    def program(self) -> Program:
        return self.kernel.program

    @property
    def share(self) -> int:
        """The SMs of one direction."""
        return self.sms // self.kernel.sides

    def blocks(self, batch: int) -> int:
        """Of one direction."""
        return self.tiling.grid(batch, self.share)

    def cost(self, batch: int) -> float:
        """Microseconds per step, about."""
        return cost(self.program, self.tiling, batch, self.kernel.kind != "tf32", self.share)

    def run(self, sides: Sequence[Arrays], time: int, batch: int, reverse: bool, time_first: bool) -> None:
        """Launch; the arrays of every direction by the names of the kernel's parameters.

        ``time_first``: y, or its gradient, has the time first in memory, and not the batch.
        """
        index = self.device.index or 0
        pointers = [arrays.get(name) for arrays in sides for _, name in self.kernel.parameters]
        pointers += watch(index)
        grid = len(sides) * self.blocks(batch)
        numbers = [time, batch, int(reverse), self.tiling.groups(batch), int(time_first)]
        here = torch.cuda.current_device() == index
        with (
            nullcontext() if here else torch.cuda.device(index)
        ):  # the latter takes as long as a small kernel
            self.loaded.launch(grid, pointers, numbers)

    def shared_arrays(self, like: Tensor, rows: int) -> Arrays:
        """What blocks exchange through, filled with the word that stands for nothing yet."""
        width, sums = self.kernel.shared_width, self.kernel.reduction_width * self.tiling.slices
        arrays: Arrays = {}
        if width:
            shared = torch.empty(rows, width, dtype=like.dtype, device=like.device)
            if self.kernel.polled:
                shared.view(torch.int32).fill_(-1)
            arrays["SHARED"] = shared
        if sums:
            arrays["ROWS"] = torch.full((rows, sums), -1, dtype=torch.int32, device=like.device)
        return arrays
