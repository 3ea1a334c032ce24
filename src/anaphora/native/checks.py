"""What C is given must be what it reads: it looks at no shape and no type of its own."""

from __future__ import annotations

import torch
from torch import Tensor


def check(what: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raises ValueError unless ``tensor`` is contiguous on the CPU, with this shape and type."""
    fits = tensor.shape == shape and tensor.dtype == dtype and tensor.device.type == "cpu"
    if not fits or not tensor.is_contiguous():
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        kind = "" if tensor.is_contiguous() else ", not contiguous"
        raise ValueError(f"{what} must be {dtype} {shape} on the CPU, contiguous; got {found}{kind}.")
