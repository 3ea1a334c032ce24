"""Products and convolutions whose rows do not depend on the batch: the same arguments and results as torch's.

Each function returns NotImplemented for arguments it does not take; torch's own function runs then. Under autocast the types
are those autocast gives. The same holds for `rows` and `attention`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.ops.invariant.arguments import cast, dense, product_precision, programs, readable, serves

UNFOLDED = 1 << 28  # bytes of the windows of a convolution that are held at a time


def matmul(a: Tensor, b: Tensor, *, out_dtype: torch.dtype | None = None) -> Any:
    """As torch.matmul, for all numbers of dimensions."""
    if not serves(a, b) or not a.dim() or not b.dim():
        return NotImplemented
    a, b = cast(a, b)
    return NotImplemented if a.dtype != b.dtype else multiply(a, b, None, product_precision(), out_dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not serves(x, weight, bias) or not x.dim() or weight.dim() != 2:
        return NotImplemented
    x, weight, bias = cast(x, weight, bias)
    if x.dtype != weight.dtype:
        return NotImplemented
    return multiply(x, weight.t(), bias, product_precision())


def addmm(
    start: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Also baddbmm: β·start + α·a·b."""
    if not serves(start, a, b):
        return NotImplemented
    start, a, b = cast(start, a, b)
    if a.dtype != b.dtype:
        return NotImplemented
    plain = beta == alpha == 1
    if plain and start.dim() == 1 and len(start) == b.shape[-1]:
        return multiply(a, b, start, product_precision(), out_dtype)
    found = multiply(a, b, None, product_precision(), out_dtype)
    return found + start if plain else alpha * found + (beta * start if beta else 0)


def multiply(
    a: Tensor, b: Tensor, bias: Tensor | None, precision: str, dtype: torch.dtype | None = None
) -> Tensor:
    """a ``(…, M, K)`` · b ``(…, K, N)`` + bias ``(N,)``; of one dimension a is ``(K,)`` and b is ``(K,)``."""
    if b.dim() == 1:
        return multiply(a, b.unsqueeze(1), None, precision, dtype).squeeze(-1)
    if a.dim() == 1:
        return multiply(a.unsqueeze(0), b, None, precision, dtype).squeeze(-2)
    if a.shape[-1] != b.shape[-2]:
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise RuntimeError(f"matrices of shapes {shapes} cannot be multiplied")
    dtype = dtype or a.dtype
    if b.dim() == 2:
        rows = dense(a.reshape(1, -1, a.shape[-1]))
        found: Tensor = programs().product(rows, readable(b.unsqueeze(0)), bias, precision, dtype)
        return found.view(*a.shape[:-1], b.shape[1])
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    left = a.expand(*batch, *a.shape[-2:]).reshape(-1, *a.shape[-2:])
    right = b.expand(*batch, *b.shape[-2:]).reshape(-1, *b.shape[-2:])
    found = programs().product(dense(left), readable(right), bias, precision, dtype)
    return found.view(*batch, a.shape[-2], b.shape[-1])


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """As conv1d and conv2d: the windows of x, laid out as rows, times the filters."""
    places = weight.dim() - 2
    if not serves(x, weight, bias) or x.dim() != weight.dim() or padding == "same":
        return NotImplemented
    x, weight, bias = cast(x, weight, bias)
    if x.dtype != weight.dtype:
        return NotImplemented
    steps, apart = _each(stride, places), _each(dilation, places)
    sides = _each(0 if padding == "valid" else padding, places)
    x = F.pad(x, [side for side in reversed(sides) for _ in range(2)])
    if groups > 1:
        parts = zip(x.chunk(groups, 1), weight.chunk(groups, 0), strict=True)
        found = torch.cat([_convolved(part, filters, steps, apart) for part, filters in parts], 1)
    else:
        found = _convolved(x, weight, steps, apart)
    return found if bias is None else found + bias.view(-1, *[1] * places)


def _convolved(x: Tensor, weight: Tensor, steps: Sequence[int], apart: Sequence[int]) -> Tensor:
    """x ``(B, C, …)`` padded, weight ``(O, C, …)`` -> ``(B, O, …)``."""
    kernel = weight.shape[2:]
    sizes = [
        (size - gap * (k - 1) - 1) // step + 1
        for size, k, step, gap in zip(x.shape[2:], kernel, steps, apart, strict=True)
    ]
    strides = [s * step for s, step in zip(x.stride()[2:], steps, strict=True)]
    inner = [s * gap for s, gap in zip(x.stride()[2:], apart, strict=True)]
    # (B, places …, C, kernel …): a view, in which numbers come several times
    shape = (x.shape[0], *sizes, x.shape[1], *kernel)
    windows = x.as_strided(shape, (x.stride(0), *strides, x.stride(1), *inner))
    filters = weight.reshape(weight.shape[0], -1).t()
    together = max(1, UNFOLDED // max(1, filters.shape[0] * math.prod(sizes) * x.element_size()))
    parts = [
        multiply(part.reshape(-1, filters.shape[0]), filters, None, product_precision(convolution=True))
        for part in torch.split(windows, together)
    ]
    found = torch.cat(parts).view(x.shape[0], *sizes, weight.shape[0])
    return found.movedim(-1, 1).contiguous()


def _each(value: Any, places: int) -> list[int]:
    return [value] * places if isinstance(value, int) else [*value] * (places if len(value) == 1 else 1)
