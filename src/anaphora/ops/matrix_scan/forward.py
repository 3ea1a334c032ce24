# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Outputs of all chunks, given the states before each; decays by channel."""

from __future__ import annotations

import triton
import triton.language as tl

from anaphora.ops.matrix_scan.parts import (
    beside,
    centred,
    decays,
    log_decays,
    mild,
    narrow,
    place_of,
    power,
    start_of,
)


@triton.jit
def by_halves(r, k, log_w, M, C: tl.constexpr, LEVELS: tl.constexpr, HALF: tl.constexpr):
    """r_i · (k_j ∘ w_{j+1}⋯w_i) at ``(i, j)`` below the diagonal and on it, for decays of any size."""
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    square = i * C + j
    decay = decays(tl.load(M + square), log_w, HALF)
    r, k = beside(r, decay), beside(k, decay)
    found = tl.where(i == j, tl.sum(r * k, 1)[:, None], 0.0)
    for level in range(LEVELS):
        right = ((i >> level) & 1) == 1
        decay = decays(tl.load(M + level * C * C + square), log_w, HALF)
        half = narrow(tl.where(right, r, k) * decay, HALF)
        pairs = tl.dot(half, tl.trans(half), input_precision="tf32x3")
        # A pair is in different halves of one block at the level of the highest bit in which its steps differ.
        found = tl.where(((i ^ j) & (1 << level)) != 0, pairs, found)
    return found


@triton.jit
def outputs(
    R, K, V, G, M, S, A, Y, T, N, D, E, rb, rt, rn, kb, kt, kn, vb, vt, vn, gb, gt, gn,
    C: tl.constexpr, LEVELS: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, SAVE: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """A block ``(C, BE)`` of Y ``(B, T, N, E)``, and the scores A ``(B·N, chunks, C, C)`` if they are to be saved."""
    block, place, b, n, first = place_of(T, N, E, C, BE)
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    square = i * C + j
    real = i < T - first
    R = start_of(R, b, first, n, rb, rt, rn)
    K = start_of(K, b, first, n, kb, kt, kn)
    G = start_of(G, b, first, n, gb, gt, gn)
    scores = tl.zeros((C, C), tl.float32)
    for d0 in range(0, D, BD):
        d = (d0 + tl.arange(0, BD))[None, :]
        live = real & (d < D)
        r = tl.load(R + i * rt + d, mask=live, other=0.0)
        k = tl.load(K + i * kt + d, mask=live, other=0.0)
        log_w = log_decays(G + i * gt + d, live)
        if mild(log_w, HALF):
            x = centred(tl.load(M + LEVELS * C * C + square), log_w, HALF)
            late = narrow(r.to(tl.float32) * power(x), HALF)
            early = narrow(k.to(tl.float32) * power(-x), HALF)
            share = tl.dot(late, tl.trans(early), input_precision="tf32x3")
        else:
            share = by_halves(r, k, log_w, M, C, LEVELS, HALF)
        scores += share
    scores = narrow(tl.where(i >= j, scores, 0.0), HALF)
    if SAVE and block == 0:
        tl.store(A + place * C * C + square, scores)
    e = (block * BE + tl.arange(0, BE))[None, :]
    live_e = real & (e < E)
    v = tl.load(start_of(V, b, first, n, vb, vt, vn) + i * vt + e, mask=live_e, other=0.0)
    y = tl.dot(scores, narrow(v, HALF), input_precision="tf32x3")
    ones = tl.load(M + LEVELS * C * C + square)
    for d0 in range(0, D, BD):
        d = (d0 + tl.arange(0, BD))[None, :]
        live = real & (d < D)
        r = tl.load(R + i * rt + d, mask=live, other=0.0)
        log_w = log_decays(G + i * gt + d, live)
        at = S + place * D * E + tl.trans(d) * E + e
        before = tl.load(at, mask=tl.trans(d < D) & (e < E), other=0.0)
        late = narrow(r.to(tl.float32) * decays(ones, log_w, HALF), HALF)
        y = tl.dot(late, narrow(before, HALF), y, input_precision="tf32x3")
    Y = start_of(Y, b, first, n, T * N * E, N * E, E)
    tl.store(Y + i * (N * E) + e, y.to(Y.dtype.element_ty), mask=live_e)
