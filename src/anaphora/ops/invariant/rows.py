"""Sums, softmax, norms and the greatest values of a row, each row by itself and in one fixed order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.ops.invariant.arguments import cast, contraction, dense, programs, serves, widened


def softmax(x: Tensor, dim: int | None = None, _stacklevel: Any = 3, dtype: torch.dtype | None = None) -> Any:
    return over_row("softmax", x, dim, dtype or _stacklevel)


def log_softmax(
    x: Tensor, dim: int | None = None, _stacklevel: Any = 3, dtype: torch.dtype | None = None
) -> Any:
    return over_row("log_softmax", x, dim, dtype or _stacklevel)


def over_row(kind: str, x: Tensor, dim: int | None, dtype: Any) -> Any:
    if not serves(x) or dim is None or not x.dim():
        return NotImplemented
    x = x.to(dtype) if isinstance(dtype, torch.dtype) else widened(x)
    moved = x.movedim(dim, -1)
    found: Tensor = programs().row(dense(moved.reshape(-1, moved.shape[-1])), kind, x.dtype)
    return found.view(moved.shape).movedim(-1, dim)


def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Any:
    if not serves(x) or not x.dim() or not (isinstance(dim, int) or len(dim) == 1):
        return NotImplemented
    dim = dim if isinstance(dim, int) else dim[0]
    x = widened(x)
    moved = x.movedim(dim, -1)
    found: Tensor = programs().row(dense(moved.reshape(-1, moved.shape[-1])), "logsumexp", x.dtype)
    found = found.view(moved.shape[:-1])
    return found.unsqueeze(dim) if keepdim else found


def total(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """As torch.sum."""
    if not serves(x) or not x.dim():
        return NotImplemented
    return _sum(widened(x), dim, keepdim, dtype)


def einsum(equation: str, *operands: Any) -> Any:
    """Of two tensors one of which has all axes, as the steps of matrix-valued states have: a product of numbers and a sum."""
    if not isinstance(equation, str) or not all(isinstance(o, Tensor) and serves(o) for o in operands):
        return NotImplemented
    parts = contraction(equation, tuple(cast(*operands)))
    if parts is None or parts[3] > max(o.numel() for o in operands):
        return NotImplemented
    left, right, summed, _ = parts
    product = left * right
    return _sum(widened(product), summed, False, None).to(product.dtype) if summed else product


def mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    if not serves(x) or not x.dim():
        return NotImplemented
    dims = _dims(x, dim)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    found = _sum(x, dims, keepdim, wide) / math.prod(x.shape[d] for d in dims)
    return found.to(dtype or x.dtype)


def variance(
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    """As torch.var."""
    if not serves(x) or not x.dim() or isinstance(dim, bool):
        return NotImplemented
    dims = _dims(x, dim)
    count = math.prod(x.shape[d] for d in dims)
    off = x - mean(x, dims, True)
    less = float(unbiased) if correction is None else correction
    return _sum(off * off, dims, keepdim, None) / max(0.0, count - less)


def _sum(x: Tensor, dim: Any, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    dims = _dims(x, dim)
    dtype = dtype or x.dtype
    x = x.double() if dtype == torch.float64 else x
    shape = [1 if d in dims else size for d, size in enumerate(x.shape)]
    last = x.dim() - 1
    if len(dims) == 1 and dims[0] != last:
        # (outer, length, inner); which of the two programs runs must follow from the dimension, not from sizes.
        before, after = math.prod(x.shape[: dims[0]]), math.prod(x.shape[dims[0] + 1 :])
        found: Tensor = programs().column_sum(dense(x).view(before, x.shape[dims[0]], after), dtype)
    else:
        moved = x.movedim(dims, tuple(range(x.dim() - len(dims), x.dim())))
        width = math.prod(x.shape[d] for d in dims)
        found = programs().row(dense(moved.reshape(-1, width)), "sum", dtype)
    found = found.view(shape)
    return found if keepdim else found.view([size for d, size in enumerate(x.shape) if d not in dims])


def _dims(x: Tensor, dim: Any) -> tuple[int, ...]:
    """The dimensions that are summed over, in order."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(x.dim()))
    return tuple(sorted({d % x.dim() for d in ([dim] if isinstance(dim, int) else dim)}))


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    found = native_layer_norm(x, normalized_shape, weight, bias, eps)
    return found if found is NotImplemented else found[0]


def native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    """The normalised tensor, and the mean and 1/deviation of each row."""
    if not serves(x, weight, bias) or x.dtype == torch.float64:
        return NotImplemented
    x = widened(x)
    width = math.prod(shape)
    flat = (None if p is None else p.contiguous().view(-1) for p in (weight, bias))
    found, middle, scale = programs().norm(dense(x.reshape(-1, width)), *flat, eps)
    rows = (*x.shape[: x.dim() - len(shape)], *[1] * len(shape))
    return found.view(x.shape), middle.view(rows), scale.view(rows)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    if not serves(x, weight, bias) or x.dtype == torch.float64:
        return NotImplemented
    x = widened(x)
    rows = dense(x.reshape(x.shape[0] * num_groups, -1))
    found: Tensor = programs().norm(rows, None, None, eps)[0].view(x.shape)
    each = (-1, *[1] * (x.dim() - 2))
    found = found if weight is None else found * weight.view(each)
    return (found if bias is None else found + bias.view(each)).to(x.dtype)


def cross_entropy(scores: Tensor, targets: Tensor, *rest: Any, **options: Any) -> Any:
    """Of each row by itself; other reductions are left to torch."""
    asked = {key: value for key, value in options.items() if value is not None}
    usual = {"ignore_index": -100, "label_smoothing": 0.0}
    plain = not rest and asked.pop("reduction", "mean") == "none"
    if not plain or any(usual.get(key) != value for key, value in asked.items()):
        return NotImplemented
    if not serves(scores) or scores.dim() != 2 or targets.dim() != 1:
        return NotImplemented
    chosen = targets.clamp(min=0).unsqueeze(1)
    found = log_softmax(scores, 1).gather(1, chosen).squeeze(1)
    return torch.where(targets == -100, 0.0, -found)


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """As torch.topk, of equal numbers the first: torch's own choice among these depends on the shape."""
    if not serves(x) or not largest or not x.dim():
        return NotImplemented
    moved = x.movedim(dim, -1)
    if x.dtype == torch.float64:
        values, places = torch.sort(moved, dim=-1, descending=True, stable=True)
        values, places = values[..., :k], places[..., :k]
    else:
        # A key for each number, all different: its bits in the order of the numbers, then its place from the end.
        bits = moved.float().view(torch.int32)
        ranked = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
        last = moved.shape[-1] - 1
        keys = (ranked << 32) + (last - torch.arange(last + 1, device=x.device))
        places = last - (keys.topk(k, -1).values & 0xFFFFFFFF)
        values = moved.gather(-1, places)
    return torch.return_types.topk((values.movedim(-1, dim), places.movedim(-1, dim)))  # type: ignore[attr-defined]
