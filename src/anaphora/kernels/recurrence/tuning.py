"""Where each GPU backend is the fastest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True)
class Region:
    """Layers of more than ``hidden`` units whose state has more than ``cells`` numbers, batch times units."""

    hidden: int
    cells: int

    def holds(self, hidden: int, batch: int) -> bool:
        return hidden > self.hidden and batch * hidden > self.cells


EVERYWHERE = Region(0, 0)


@dataclass(frozen=True)
class Thresholds:
    """Where one backend is faster than another on a GPU. The defaults were measured on an NVIDIA H200 with
    ``benchmarks/recurrence_gpu.py``."""

    triton_over_persistent: Region = Region(512, 80_000)
    persistent_over_cudnn: Region = EVERYWHERE
    triton_over_cudnn: Region = EVERYWHERE
    triton_over_graph: Region = EVERYWHERE


H200 = Thresholds()
KNOWN = {"NVIDIA H200": H200}  # by the name of the GPU


@cache
def thresholds(device: torch.device) -> Thresholds | None:
    """Which backend to prefer on this GPU; None where nothing is known of it."""
    return KNOWN.get(torch.cuda.get_device_name(device))
