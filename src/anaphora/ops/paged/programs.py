# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Attention to pages as a Triton program: one row and head each, blocks of places in their order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # places looked at together


@triton.jit(do_not_specialize=["most", "reach"])
def _attend_pages(
    q, pages, table, slopes, out, scale, most, reach,
    HEADS: tl.constexpr, KEPT: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    SIZE: tl.constexpr, BS: tl.constexpr, SLOPES: tl.constexpr,
):  # fmt: skip
    """softmax(q kᵀ · scale − slope · distance) v over the places of the row's own pages."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kept = head // (HEADS // KEPT)
    table += row * (1 + most)
    length = tl.load(table).to(tl.int32)
    first = tl.maximum(length - reach, 0)
    d = tl.arange(0, WIDTH)
    query = tl.load(q + (row * HEADS + head) * D + d, mask=d < D, other=0.0).to(tl.float32)
    slope = 0.0
    if SLOPES:
        slope = tl.load(slopes + head).to(tl.float32)
    greatest = tl.full((1,), float("-inf"), tl.float32)
    total = tl.zeros((1,), tl.float32)
    found = tl.zeros((WIDTH,), tl.float32)
    for at in range(first, length, BS):
        place = at + tl.arange(0, BS)
        real = place < length
        page = tl.load(table + 1 + place // SIZE, mask=real, other=0)
        base = (page * SIZE + place % SIZE) * (2 * KEPT * D)
        seen = real[:, None] & (d[None, :] < D)
        keys = tl.load(pages + base[:, None] + kept * D + d[None, :], mask=seen, other=0.0).to(tl.float32)
        score = tl.sum(keys * query[None, :], 1) * scale
        if SLOPES:
            score = score - slope * (length - 1 - place).to(tl.float32)
        score = tl.where(real, score, float("-inf"))
        higher = tl.maximum(greatest, tl.max(score, 0))
        weight = tl.exp(score - higher)
        keep = tl.exp(greatest - higher)
        total = total * keep + tl.sum(weight, 0)
        values = tl.load(pages + base[:, None] + (KEPT + kept) * D + d[None, :], mask=seen, other=0.0)
        found = found * keep + tl.sum(weight[:, None] * values.to(tl.float32), 0)
        greatest = higher
    found = found / total
    tl.store(out + (row * HEADS + head) * D + d, found.to(out.dtype.element_ty), mask=d < D)


def attend_pages(
    query: Tensor, pages: Tensor, table: Tensor, heads: int, slopes: Tensor | None, reach: int | None
) -> Tensor:
    """See `anaphora.ops.paged.attend_pages`; all tensors on one GPU, ``table`` contiguous."""
    rows, width = query.shape
    d, most = width // heads, table.shape[1] - 1
    query, out = query.contiguous(), torch.empty_like(query, memory_format=torch.contiguous_format)
    if not rows:
        return out
    _attend_pages[(rows, heads)](
        query, pages, table, query if slopes is None else slopes, out, d**-0.5, most,
        reach or most * pages.shape[1],
        HEADS=heads, KEPT=pages.shape[2] // (2 * d), D=d, WIDTH=max(16, triton.next_power_of_2(d)),
        SIZE=pages.shape[1], BS=BLOCK, SLOPES=slopes is not None, num_warps=4,
    )  # fmt: skip
    return out
