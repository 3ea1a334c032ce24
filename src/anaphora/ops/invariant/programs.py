# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Triton programs whose result for one row does not depend on the other rows, nor on how far the rows are padded.

Every sum has one fixed order. Products add up blocks of the depth K one after the other, never in parallel shares;
tiles have the same shape whatever the batch; trailing zeros add exact zeros. A number that follows from the batch is not
specialised on (``do_not_specialize``) where that would change how a sum is laid out over threads.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LANES = 1024  # of a row that are read at a time; a sum over a row has one chain of additions per lane


@triton.jit(do_not_specialize=["M"])
def _product(
    a, b, bias, out, M, N, K, az, bz, bk, bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """One tile ``(BM, BN)`` of out ``(Z, M, N)`` = a ``(Z, M, K)`` · b ``(Z, K, N)``; ``az``, ``bz``, ``bk``, ``bn``: strides."""
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    z = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    m = (tile // tiles_n).to(tl.int64) * BM + tl.arange(0, BM)
    n = (tile % tiles_n) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_at = a + z * az + m[:, None] * K + depth[None, :]
    b_at = b + z * bz + depth[:, None] * bk + n[None, :].to(tl.int64) * bn
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a_at, mask=(m[:, None] < M) & (depth[None, :] < K - k), other=0.0)
        right = tl.load(b_at, mask=(depth[:, None] < K - k) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
        a_at += BK
        b_at += BK * bk
    found = total.to(out.dtype.element_ty)
    if BIAS:
        # Rounded before the bias is added, as where torch adds it in a second kernel: which of the two torch takes
        # depends on how the input lies in memory.
        found = (found.to(tl.float32) + tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]).to(
            out.dtype.element_ty
        )
    tl.store(out + (z * M + m[:, None]) * N + n[None, :], found, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit(do_not_specialize=["M", "N", "K"])
def _product_in_turn(a, b, out, M, N, K, az, bz, bk, bn, BM: tl.constexpr, BN: tl.constexpr):
    """The same in the type of ``out``, one k after the other: for float64, which has few products here."""
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    z = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    m = (tile // tiles_n).to(tl.int64) * BM + tl.arange(0, BM)
    n = (tile % tiles_n) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), out.dtype.element_ty)
    for k in range(K):
        left = tl.load(a + z * az + m * K + k, mask=m < M, other=0.0)
        right = tl.load(b + z * bz + k * bk + n.to(tl.int64) * bn, mask=n < N, other=0.0)
        total += left[:, None] * right[None, :]
    tl.store(out + (z * M + m[:, None]) * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit(do_not_specialize=["width"])
def _row(x, out, width, KIND: tl.constexpr, WIDE: tl.constexpr, LANES: tl.constexpr):
    """One row of x ``(rows, width)``: its sum, log Σ exp, softmax or log softmax."""
    row = tl.program_id(0).to(tl.int64)
    x += row * width
    lane = tl.arange(0, LANES)
    greatest = tl.full((LANES,), float("-inf"), WIDE)
    if KIND != "sum":
        for at in range(0, width, LANES):
            value = tl.load(x + at + lane, mask=lane < width - at, other=float("-inf")).to(WIDE)
            greatest = tl.maximum(greatest, value)
    most = tl.max(greatest, 0)
    if KIND == "logsumexp":
        most = tl.where(tl.abs(most) == float("inf"), 0.0, most)  # as torch: a row of −inf has log Σ = −inf
    total = tl.zeros((LANES,), WIDE)
    for at in range(0, width, LANES):
        real = lane < width - at
        value = tl.load(x + at + lane, mask=real, other=0.0).to(WIDE)
        if KIND != "sum":
            value = tl.where(real, tl.exp(value - most), 0.0)
        total += value
    whole = tl.sum(total, 0)
    if KIND == "sum":
        tl.store(out + row, whole.to(out.dtype.element_ty))
    elif KIND == "logsumexp":
        tl.store(out + row, (most + tl.log(whole)).to(out.dtype.element_ty))
    else:
        out += row * width
        for at in range(0, width, LANES):
            real = lane < width - at
            value = tl.load(x + at + lane, mask=real, other=0.0).to(WIDE) - most
            if KIND == "softmax":
                value = tl.exp(value) / whole
            else:
                value -= tl.log(whole)
            tl.store(out + at + lane, value.to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["width"])
def _norm(
    x, weight, bias, out, mean_out, scale_out, width, eps,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """LayerNorm of one row of x ``(rows, width)`` in float32, and its mean and 1/√(variance + ε)."""
    row = tl.program_id(0).to(tl.int64)
    x += row * width
    out += row * width
    lane = tl.arange(0, LANES)
    total = tl.zeros((LANES,), tl.float32)
    for at in range(0, width, LANES):
        total += tl.load(x + at + lane, mask=lane < width - at, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / width
    total = tl.zeros((LANES,), tl.float32)
    for at in range(0, width, LANES):
        real = lane < width - at
        off = tl.load(x + at + lane, mask=real, other=0.0).to(tl.float32) - mean
        total += tl.where(real, off * off, 0.0)
    scale = 1 / tl.sqrt(tl.sum(total, 0) / width + eps)
    tl.store(mean_out + row, mean)
    tl.store(scale_out + row, scale)
    for at in range(0, width, LANES):
        real = lane < width - at
        value = (tl.load(x + at + lane, mask=real, other=0.0).to(tl.float32) - mean) * scale
        if WEIGHT:
            value *= tl.load(weight + at + lane, mask=real, other=0.0).to(tl.float32)
        if BIAS:
            value += tl.load(bias + at + lane, mask=real, other=0.0).to(tl.float32)
        tl.store(out + at + lane, value.to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["length", "inner"])
def _column_sum(x, out, length, inner, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Sums over the middle of x ``(outer, length, inner)``, from the first to the last."""
    blocks = tl.cdiv(inner, BLOCK)
    outer = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    at = x + outer * length * inner + column
    total = tl.zeros((BLOCK,), WIDE)
    for _ in range(length):
        total += tl.load(at, mask=column < inner, other=0.0).to(WIDE)
        at += inner
    tl.store(out + outer * inner + column, total.to(out.dtype.element_ty), mask=column < inner)


@triton.jit(do_not_specialize=["heads", "Q", "S", "mb", "mh", "mq", "ms"])
def _attention(
    q, k, v, mask, out, scale, heads, Q, S,
    qb, qh, qs, kb, kh, ks, vb, vh, vs, mb, mh, mq, ms,
    D: tl.constexpr, DV: tl.constexpr, WIDTH: tl.constexpr, WIDTH_V: tl.constexpr,
    BQ: tl.constexpr, BS: tl.constexpr, MASK: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``BQ`` queries of one head: softmax(q kᵀ·scale + mask) v, over blocks of ``BS`` keys in their order.

    A block that is hidden altogether multiplies what is there by exp(0) = 1 and adds zeros. A query that sees no key
    gives zeros.
    """
    tiles = tl.cdiv(Q, BQ)
    z = tl.program_id(0) // tiles
    batch, head = (z // heads).to(tl.int64), (z % heads).to(tl.int64)
    query = (tl.program_id(0) % tiles) * BQ + tl.arange(0, BQ)
    key, d, dv = tl.arange(0, BS), tl.arange(0, WIDTH), tl.arange(0, WIDTH_V)
    asked = query[:, None] < Q
    q += batch * qb + head * qh
    k += batch * kb + head * kh
    v += batch * vb + head * vh
    rows = tl.load(
        q + query[:, None].to(tl.int64) * qs + d[None, :], mask=asked & (d[None, :] < D), other=0.0
    )
    most = tl.full((BQ,), float("-inf"), tl.float32)
    total = tl.zeros((BQ,), tl.float32)
    found = tl.zeros((BQ, WIDTH_V), tl.float32)
    end = S
    if CAUSAL:
        end = tl.minimum(S, (tl.program_id(0) % tiles + 1) * BQ)
    for at in range(0, end, BS):
        place = at + key
        real = place < S
        keys = tl.load(
            k + place[None, :].to(tl.int64) * ks + d[:, None],
            mask=real[None, :] & (d[:, None] < D),
            other=0.0,
        )
        score = tl.dot(rows, keys, input_precision=PRECISION) * scale
        seen = asked & real[None, :]
        if CAUSAL:
            seen = seen & (place[None, :] <= query[:, None])
        mask_at = mask + batch * mb + head * mh + query[:, None].to(tl.int64) * mq + place[None, :] * ms
        if MASK == "bool":
            seen = seen & (tl.load(mask_at, mask=seen, other=0) != 0)
        else:
            score += tl.load(mask_at, mask=seen, other=0.0).to(tl.float32)
        # A choice also keeps the compiler from fusing ·scale and − most into one rounding in some of the variants.
        score = tl.where(seen, score, float("-inf"))
        higher = tl.maximum(most, tl.max(score, 1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp(score - shift[:, None])
        keep = tl.exp(most - shift)
        total = total * keep + tl.sum(weight, 1)
        values = tl.load(
            v + place[:, None].to(tl.int64) * vs + dv[None, :],
            mask=real[:, None] & (dv[None, :] < DV),
            other=0.0,
        )
        found = tl.dot(weight.to(values.dtype), values, found * keep[:, None], input_precision=PRECISION)
        most = higher
    found = found / tl.where(total == 0.0, 1.0, total)[:, None]
    out += (z.to(tl.int64) * Q + query[:, None]) * DV + dv[None, :]
    tl.store(out, found.to(out.dtype.element_ty), mask=asked & (dv[None, :] < DV))


# ---------------------------------------------------------------------- launching
_TILES = {  # (BM, BN, BK, warps, stages): by type and precision alone
    "half": (64, 64, 64, 4, 4),
    "tf32": (64, 64, 32, 4, 4),
    "ieee": (64, 64, 16, 4, 3),
}


def product(a: Tensor, b: Tensor, bias: Tensor | None, precision: str, dtype: torch.dtype) -> Tensor:
    """a ``(Z, M, K)`` · b ``(Z or 1, K, N)`` + bias ``(N,)`` as ``(Z, M, N)`` of ``dtype``; a is contiguous."""
    (groups, rows, depth), columns = a.shape, b.shape[2]
    out = a.new_empty(groups, rows, columns, dtype=dtype)
    if not out.numel():
        return out
    alone = 0 if groups == 1 else a.stride(0), 0 if b.shape[0] == 1 else b.stride(0)
    strides = (*alone, b.stride(1), b.stride(2))
    if a.dtype == torch.float64:
        grid = (groups * triton.cdiv(rows, 16) * triton.cdiv(columns, 32),)
        _product_in_turn[grid](a, b, out, rows, columns, depth, *strides, BM=16, BN=32)
        return out if bias is None else out.add_(bias)
    kind = precision if a.dtype == torch.float32 else "half"
    bm, bn, bk, warps, stages = _TILES[kind]
    grid = (groups * triton.cdiv(rows, bm) * triton.cdiv(columns, bn),)
    _product[grid](
        a, b, a if bias is None else bias, out, rows, columns, depth, *strides,
        BM=bm, BN=bn, BK=bk, PRECISION="tf32" if kind == "tf32" else "ieee", BIAS=bias is not None,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def row(x: Tensor, kind: str, dtype: torch.dtype) -> Tensor:
    """ "sum" or "logsumexp" ``(rows,)``, "softmax" or "log_softmax" ``(rows, width)`` of contiguous x ``(rows, width)``."""
    out = x.new_empty(x.shape if "softmax" in kind else x.shape[:1], dtype=dtype)
    if x.shape[0]:
        _row[(x.shape[0],)](x, out, x.shape[1], KIND=kind, WIDE=_wide(x), LANES=LANES, num_warps=4)
    return out


def norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm of contiguous x ``(rows, width)``, and the mean and 1/deviation of each row in float32."""
    rows, width = x.shape
    out = torch.empty_like(x)
    mean, scale = (x.new_empty(rows, dtype=torch.float32) for _ in range(2))
    if rows:
        _norm[(rows,)](
            x, x if weight is None else weight, x if bias is None else bias, out, mean, scale, width, eps,
            WEIGHT=weight is not None, BIAS=bias is not None, LANES=LANES, num_warps=4,
        )  # fmt: skip
    return out, mean, scale


def column_sum(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Σ over the middle of contiguous x ``(outer, length, inner)`` as ``(outer, inner)``."""
    outer, length, inner = x.shape
    out = x.new_empty(outer, inner, dtype=dtype)
    if out.numel():
        _column_sum[(outer * triton.cdiv(inner, 128),)](x, out, length, inner, WIDE=_wide(x), BLOCK=128)
    return out


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, precision: str
) -> Tensor:
    """softmax(q kᵀ·scale + mask) v as ``(B, heads, Q, Dv)``; q ``(B, heads, Q, D)``, k and v ``(B, heads, S, ·)`` with
    last strides of 1, mask expanded to ``(B, heads, Q, S)``."""
    batch, heads, queries, width = q.shape
    out = q.new_empty(batch, heads, queries, v.shape[3])
    if not out.numel():
        return out
    if mask is None:
        # As if all keys were seen: a program without a mask would be compiled otherwise and round otherwise, so that a
        # row alone, which needs no mask, would differ from the same row among longer ones.
        mask = torch.ones((), dtype=torch.bool, device=q.device).expand(batch, heads, queries, k.shape[2])
    kind = "bool" if mask.dtype == torch.bool else "added"
    mask = mask.view(torch.uint8) if kind == "bool" else mask
    strides: list[Any] = [s for t in (q, k, v) for s in t.stride()[:3]]
    strides += mask.stride()
    _attention[(batch * heads * triton.cdiv(queries, 32),)](
        q, k, v, mask, out, scale, heads, queries, k.shape[2], *strides,
        D=width, DV=v.shape[3], WIDTH=max(16, triton.next_power_of_2(width)),
        WIDTH_V=max(16, triton.next_power_of_2(v.shape[3])), BQ=32, BS=64, MASK=kind, CAUSAL=causal,
        PRECISION="tf32" if precision == "tf32" else "ieee", num_warps=4, num_stages=2,
    )  # fmt: skip
    return out


def _wide(x: Tensor) -> Any:
    return tl.float64 if x.dtype == torch.float64 else tl.float32
