"""Which of torch's attention kernels comes first on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

LONG = 512
"""Places from which cuDNN's kernel is ahead of flash attention on an H200: forward and backward 0.57 against 0.82 ms for 16 × 12
heads of 1 024 places, 0.62 against 0.97 for 8 × 12 of 2 048; 0.59 against 0.46 for 64 × 6 of 256 (bf16, head width 64)."""
_ORDER = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


@contextmanager
def quickest_attention(places: int, device: torch.device) -> Iterator[None]:
    """Inside the block, cuDNN's attention comes first for sequences of ``places`` where it was measured to be ahead: long ones
    on GPUs of Hopper's generation or later, unless algorithms have to be deterministic. Elsewhere torch's own order holds."""
    ahead = (
        device.type == "cuda"
        and places >= LONG
        and torch.cuda.get_device_capability(device) >= (9, 0)
        and not torch.are_deterministic_algorithms_enabled()
    )
    if not ahead:
        yield
        return
    with sdpa_kernel(_ORDER, set_priority=True):
        yield
