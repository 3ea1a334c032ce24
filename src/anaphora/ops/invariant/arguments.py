"""What the replacements share: which tensors they take, the types autocast gives, and how tensors lie in memory."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from anaphora.native.following import GLOBAL_HOOK, following, needs_gradient

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
DEVICES = {"cuda"}


def programs() -> Any:
    """The Triton programs, imported when the first is needed."""
    return import_module("anaphora.ops.invariant.programs")


def serves(*tensors: Tensor | None) -> bool:
    """Return True if the programs take these: floats on a GPU without gradient, where no one follows the operations."""
    given = [t for t in tensors if t is not None]
    if not all(t.device.type in DEVICES and t.dtype in FLOATS for t in given):
        return False
    # Hooks of modules see no single function, whose bits count here.
    return not needs_gradient(*given) and following(*given) in (None, GLOBAL_HOOK)


def cast(*tensors: Tensor | None) -> list[Any]:
    """What a product takes: under autocast its type, except for float64."""
    kind = next(t.device.type for t in tensors if t is not None)
    if not torch.is_autocast_enabled(kind):
        return list(tensors)
    dtype = torch.get_autocast_dtype(kind)
    return [t if t is None or t.dtype == torch.float64 else t.to(dtype) for t in tensors]


def widened(x: Tensor) -> Tensor:
    """What a sum takes: under autocast float32."""
    low = x.dtype in (torch.bfloat16, torch.float16)
    return x.float() if low and torch.is_autocast_enabled(x.device.type) else x


def product_precision(convolution: bool = False) -> str:
    """How exact products of float32 numbers must be: as torch's own switches say."""
    cuda: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    switch = cudnn.conv if convolution else cuda
    return "tf32" if switch.fp32_precision == "tf32" else "ieee"


def dense(x: Tensor) -> Tensor:
    """The tensor in one piece, at an address from which 16 bytes can be read at a time: then one machine code serves."""
    x = x.contiguous()
    return x.clone() if x.data_ptr() % 16 else x


def readable(b: Tensor) -> Tensor:
    """b ``(Z, K, N)`` with neighbours along K or along N."""
    return b if 1 in b.stride()[1:] else b.contiguous()


def contraction(
    equation: str, operands: tuple[Any, ...]
) -> tuple[Tensor, Tensor, tuple[int, ...], int] | None:
    """The two tensors of an einsum with all axes in one order, which axes are summed, and how many numbers their product has;
    None for an einsum of another kind."""
    given, _, wanted = equation.replace(" ", "").partition("->")
    axes = given.split(",")
    if len(operands) != 2 or len(axes) != 2 or not wanted.isalpha() or not "".join(axes).isalpha():
        return None
    order = wanted + "".join(sorted(set("".join(axes)) - set(wanted)))
    placed: list[Tensor] = []
    sizes: dict[str, int] = {}
    for names, operand in zip(axes, operands, strict=True):
        sizes |= dict(zip(names, operand.shape, strict=True))
        there = [name for name in order if name in names]
        value = operand.permute([names.index(name) for name in there])
        placed.append(value[tuple(slice(None) if name in names else None for name in order)])
    return placed[0], placed[1], tuple(range(len(wanted), len(order))), math.prod(sizes.values())
