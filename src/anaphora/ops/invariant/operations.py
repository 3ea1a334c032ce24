"""What the replacements share: which tensors they take, the types autocast gives, and how tensors lie in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

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


# ----------------------------------------------------------------------
# Products and convolutions whose rows do not depend on the batch: the same arguments and results as torch's.
#
# Each function returns NotImplemented for arguments it does not take; torch's own function runs then. Under autocast the types
# are those autocast gives. The same holds for `rows` and `attention`.
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


# ----------------------------------------------------------------------
# Sums, softmax, norms and the greatest values of a row, each row by itself and in one fixed order.
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


# ---------------------------------------------------------------------- attention whose rows do not depend on the batch
WIDEST = (
    128  # values of an attention head that its program takes; wider heads are computed product by product
)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """As scaled_dot_product_attention; a query that sees no key gives zeros."""
    fits = serves(query, key, value) and query.dim() in (3, 4) and not dropout_p and not enable_gqa
    if not fits or query.shape[:-2] != key.shape[:-2]:
        return NotImplemented
    q, k, v = cast(query, key, value)
    if q.dtype == torch.float64 or len({q.dtype, k.dtype, v.dtype}) > 1:
        return NotImplemented
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if max(q.shape[-1], v.shape[-1]) > WIDEST:
        return _attention_in_parts(q, k, v, attn_mask, is_causal, scale)
    flat = q.dim() == 3
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*q.shape[:-1], k.shape[-2])
    if flat:
        q, k, v = (t.unsqueeze(1) for t in (q, k, v))
        attn_mask = None if attn_mask is None else attn_mask.unsqueeze(1)
    q, k, v = (t if t.stride(3) == 1 else t.contiguous() for t in (q, k, v))
    found: Tensor = programs().attention(q, k, v, attn_mask, is_causal, scale, product_precision())
    return found.squeeze(1) if flat else found


def _attention_in_parts(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    scores = multiply(q, k.transpose(-2, -1), None, product_precision(), torch.float32) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril().logical_not()
        scores = scores.masked_fill(hidden, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = over_row("softmax", scores, -1, torch.float32)
    weights = weights.masked_fill(scores.amax(-1, keepdim=True) == -math.inf, 0.0)
    return multiply(weights.to(v.dtype), v, None, product_precision())
