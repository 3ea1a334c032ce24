# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Outputs of all chunks, given the states before each; decays by channel."""

from __future__ import annotations

import triton
import triton.language as tl

from anaphora.kernels.matrix_scan.parts import decays, log_decays, narrow


@triton.jit
def outputs(
    R, K, V, G, M, S, A, Y, T, N, D, E, rb, rt, rn, kb, kt, kn, vb, vt, vn, gb, gt, gn,
    C: tl.constexpr, LEVELS: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, SAVE: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """A block ``(C, BE)`` of Y ``(B, T, N, E)``, and the scores A ``(B·N, chunks, C, C)`` if they are to be saved."""
    blocks, chunks = tl.cdiv(E, BE), tl.cdiv(T, C)
    block, place = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    row, chunk = place // chunks, place % chunks
    b, n = row // N, row % N
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    square, apart = i * C + j, i ^ j
    t = chunk * C + tl.arange(0, C)
    R += b * rb + n * rn
    K += b * kb + n * kn
    G += b * gb + n * gn
    scores = tl.zeros((C, C), tl.float32)
    for d0 in range(0, D, BD):
        d = d0 + tl.arange(0, BD)
        live = (t < T)[:, None] & (d < D)[None, :]
        r = tl.load(R + t[:, None] * rt + d[None, :], mask=live, other=0.0)
        k = tl.load(K + t[:, None] * kt + d[None, :], mask=live, other=0.0)
        log_w = log_decays(G + t[:, None] * gt + d[None, :], live)
        share = tl.where(i == j, tl.sum(r.to(tl.float32) * k.to(tl.float32), 1)[:, None], 0.0)
        for level in range(LEVELS):
            right = ((i >> level) & 1) == 1
            decay = decays(tl.load(M + level * C * C + square), log_w, HALF)
            half = narrow(tl.where(right, r, k).to(tl.float32) * decay, HALF)
            found = tl.dot(half, tl.trans(half), input_precision="tf32x3")
            # A pair of steps is in different halves of one block at one level; what later levels find is not kept here.
            share = tl.where(apart >= (1 << level), found, share)
        scores += share
    scores = narrow(tl.where(i >= j, scores, 0.0), HALF)
    if SAVE and block == 0:
        tl.store(A + place * C * C + square, scores)
    e = block * BE + tl.arange(0, BE)
    live_e = (t < T)[:, None] & (e < E)[None, :]
    v = tl.load(V + b * vb + n * vn + t[:, None] * vt + e[None, :], mask=live_e, other=0.0)
    y = tl.dot(scores, narrow(v, HALF), input_precision="tf32x3")
    ones = tl.load(M + LEVELS * C * C + square)
    for d0 in range(0, D, BD):
        d = d0 + tl.arange(0, BD)
        live = (t < T)[:, None] & (d < D)[None, :]
        r = tl.load(R + t[:, None] * rt + d[None, :], mask=live, other=0.0)
        log_w = log_decays(G + t[:, None] * gt + d[None, :], live)
        at = S + place * D * E + d[:, None] * E + e[None, :]
        before = tl.load(at, mask=(d < D)[:, None] & (e < E)[None, :], other=0.0)
        late = narrow(r.to(tl.float32) * decays(ones, log_w, HALF), HALF)
        y = tl.dot(late, narrow(before, HALF), y, input_precision="tf32x3")
    tl.store(Y + ((b * T + t[:, None]) * N + n) * E + e[None, :], y.to(Y.dtype.element_ty), mask=live_e)
