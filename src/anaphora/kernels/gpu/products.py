"""Large products for a training step by the quickest of NVIDIA's kernels for them, which is tried out once for each size.

cuBLAS takes the first kernel that its rules name. On an H200 that is busy all the time its choice for a wide result of a short sum, such as
16 384 × 3 072 of 768, takes 132 µs, and another one 121. Only those are kept whose
result has the same bits in some rows, as undivided sums have, so that a run does not depend on which was quicker on the day.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.kernels.gpu.kernel import serves
from anaphora.kernels.gpu.undivided import undivided
from anaphora.kernels.toolchain.cublaslt import LibraryError, Product, Side, Way

LARGE = 1 << 34  # multiplications from which on it is worth trying: some 50 µs on an H200
MANY = 16  # kernels that are tried, at most
SIZES = 64  # of which the best is looked for; more would mean that they change all the time
ROUNDS, CALLS = 4, 3
ALIGNED = 256  # bytes at whose multiples cublasLt takes matrices to begin
AHEAD = 0.96  # of the time of torch's choice that another one may take to be preferred; small tiles gain less once the GPU is hot

Chosen = tuple[Product, Way] | None
_known: dict[tuple[object, ...], Chosen] = {}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b: x ``(n, k)``, weight ``(m, k)``, bias ``(m,)`` of one type: ``(n, m)``."""
    (n, k), m = x.shape, len(weight)

    def by_torch(out: Tensor) -> None:
        if bias is None:
            torch.mm(x, weight.t(), out=out)
        else:
            torch.addmm(bias, x, weight.t(), out=out)

    chosen = _chosen(Side(k, m, True), Side(k, n, False), weight, x, bias, by_torch)
    if chosen is None:
        return F.linear(x, weight, bias)
    out = x.new_empty(n, m)
    chosen[0].run(chosen[1], weight, x, out, bias)
    return out


def carried_down(d: Tensor, weight: Tensor) -> Tensor:
    """d W: d ``(n, m)``, weight ``(m, k)`` of one type: ``(n, k)``."""
    (n, m), k = d.shape, weight.shape[1]
    sides = Side(k, m, False), Side(m, n, False)
    chosen = _chosen(*sides, weight, d, None, lambda out: torch.mm(d, weight, out=out))
    if chosen is None:
        return d @ weight
    out = d.new_empty(n, k)
    chosen[0].run(chosen[1], weight, d, out)
    return out


def wide_product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """aᵀ b in ``dtype``, which is at least as wide as theirs: a GPU does not round it in between."""
    if a.is_cuda and dtype == torch.float32:
        with undivided(len(a), a.shape[1], b.shape[1], a.device):
            return torch.mm(a.t(), b, out_dtype=dtype)
    return (a.t() @ b).to(dtype)


def _chosen(
    a: Side, b: Side, left: Tensor, right: Tensor, bias: Tensor | None, by_torch: Callable[[Tensor], object]
) -> Chosen:
    """The kernel for a product of this size; None where it is torch's, or where nothing can be tried now."""
    work = a.rows * a.columns * b.columns
    if not right.is_cuda or work < LARGE or not _fits(left, right, bias):
        return None
    key = (a, b, right.dtype, bias is not None, right.device.index)
    if key in _known:
        return _known[key]
    if len(_known) >= SIZES or torch.cuda.is_current_stream_capturing():
        return None
    try:
        _known[key] = _quickest(a, b, left, right, bias, by_torch)
    except (LibraryError, torch.cuda.OutOfMemoryError):
        _known[key] = None
    return _known[key]


def _fits(left: Tensor, right: Tensor, bias: Tensor | None) -> bool:
    """Whether these can be given to cublasLt: rows side by side, on a GPU of Hopper's generation or later."""
    given = [left, right, *(() if bias is None else (bias,))]
    return (
        right.dtype in (torch.bfloat16, torch.float16)
        and all(t.dtype == right.dtype and t.is_contiguous() and t.data_ptr() % ALIGNED == 0 for t in given)
        and serves(*given)
        and not (torch.is_grad_enabled() and any(t.requires_grad for t in given))
        and torch.cuda.get_device_capability(right.device) >= (9, 0)
        and torch.cuda.current_device() == (right.device.index or 0)
    )


def _quickest(
    a: Side, b: Side, left: Tensor, right: Tensor, bias: Tensor | None, by_torch: Callable[[Tensor], object]
) -> Chosen:
    rows = a.columns if a.transposed else a.rows
    out = right.new_empty(b.columns, rows)
    product = Product(a, b, right.dtype, biased=bias is not None, index=right.device.index or 0)
    by_torch(out)
    some = slice(None, None, max(1, len(out) // 64))
    wanted = out[some].clone()
    ways: list[Way] = []
    for way in product.ways(MANY, bias):
        out[some] = 0
        product.run(way, left, right, out, bias)
        if torch.equal(out[some], wanted):
            ways.append(way)
    runs = [
        lambda: by_torch(out),
        *(lambda way=way: product.run(way, left, right, out, bias) for way in ways),
    ]
    times = _least(runs)
    best = min(range(len(runs)), key=times.__getitem__)
    return (product, ways[best - 1]) if best and times[best] < AHEAD * times[0] else None


def _least(runs: list[Callable[[], object]]) -> list[float]:
    """The least time of each of several rounds, in which they take turns."""
    marks: list[list[tuple[Any, Any]]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, mine in zip(runs, marks, strict=True):
            pair = _event(), _event()
            run()
            pair[0].record()
            for _ in range(CALLS):
                run()
            pair[1].record()
            mine.append(pair)
    torch.cuda.synchronize()
    return [min(begun.elapsed_time(ended) for begun, ended in mine) for mine in marks]


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
