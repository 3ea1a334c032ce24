# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Gradients of all chunks, given the states before and the gradients of the states after each."""

from __future__ import annotations

import triton
import triton.language as tl

from anaphora.ops.matrix_scan.parts import (  # fmt: skip
    NEVER,
    across_chunks,
    beside,
    centred,
    decays,
    log_decays,
    masked,
    mild,
    narrow,
    place_of,
    power,
    start_of,
    summed_twice,
    until_end,
)


@triton.jit
def values(
    K, V, G, M, A, DY, DS, DV, DA, T, N, D, E, kb, kt, kn, vb, vt, vn, gb, gt, gn, yb, yt, yn,
    C: tl.constexpr, LEVELS: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BY_HEAD: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """A block ``(C, BE)`` of dv_j = Σ_{i≥j} A_ij dy_i + dSᵀ (k_j ∘ w_{j+1}⋯w_C), and dA = dy vᵀ, both triangles alike."""
    block, place, b, n, first = place_of(T, N, E, C, BE)
    i = tl.arange(0, C)
    e = block * BE + tl.arange(0, BE)
    square = i[:, None] * C + i[None, :]
    real = i < T - first
    K = start_of(K, b, first, n, kb, kt, kn)
    G = start_of(G, b, first, n, gb, gt, gn)
    DY = start_of(DY, b, first, n, yb, yt, yn)
    live_e = real[:, None] & (e < E)[None, :]
    dy = tl.load(DY + i[:, None] * yt + e[None, :], mask=live_e, other=0.0)
    if block == 0:
        V = start_of(V, b, first, n, vb, vt, vn)
        da = tl.zeros((C, C), tl.float32)
        for e0 in range(0, E, BE):
            more = real[:, None] & (e0 + e < E)[None, :]
            x = tl.load(DY + i[:, None] * yt + e0 + e[None, :], mask=more, other=0.0)
            v = tl.load(V + i[:, None] * vt + e0 + e[None, :], mask=more, other=0.0)
            da = tl.dot(narrow(x, HALF), tl.trans(narrow(v, HALF)), da, input_precision="tf32x3")
        da = tl.where(i[:, None] >= i[None, :], da, tl.trans(da))
        tl.store(DA + place * C * C + square, narrow(da, HALF))
    scores = narrow(tl.load(A + place * C * C + square), HALF)
    dv = tl.dot(tl.trans(scores), narrow(dy, HALF), input_precision="tf32x3")
    if BY_HEAD:
        decay = until_end(log_decays(G + i * gt, real), C)[:, None]
    else:
        ones = tl.load(M + (LEVELS + 1) * C * C + square)
    for d0 in range(0, D, BD):
        d = d0 + tl.arange(0, BD)
        live = real[:, None] & (d < D)[None, :]
        k = tl.load(K + i[:, None] * kt + d[None, :], mask=live, other=0.0).to(tl.float32)
        at = DS + place * D * E + d[:, None] * E + e[None, :]
        after = tl.load(at, mask=(d < D)[:, None] & (e < E)[None, :], other=0.0)
        if BY_HEAD:
            kept = k * decay
        else:
            kept = k * decays(ones, log_decays(G + i[:, None] * gt + d[None, :], live), HALF)
        dv = tl.dot(narrow(kept, HALF), narrow(after, HALF), dv, input_precision="tf32x3")
    DV = start_of(DV, b, first, n, T * N * E, N * E, E)
    tl.store(DV + i[:, None] * (N * E) + e[None, :], dv.to(DV.dtype.element_ty), mask=live_e)


@triton.jit
def keys(
    R, K, V, G, M, MB, S, DA, DY, DS, DR, DK, DG, T, N, D, E,
    rb, rt, rn, kb, kt, kn, vb, vt, vn, gb, gt, gn, yb, yt, yn,
    C: tl.constexpr, LEVELS: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """A block ``(C, BD)`` of dr, dk and dlog w; decays by channel.

    Each sum of logarithms X = M log w of the forward pass has dX = r ∘ dr or k ∘ dk of its own terms, and dlog w = Σ Mᵀ dX.
    Within a chunk that is Σ_{i≥s} (r_i ∘ dr_i − k_i ∘ dk_i) and a share of the last state. Both are made of the same
    rounded factors, so that what cancels does so but for float32's rounding, and no sum runs over more than one chunk.
    """
    block, place, b, n, first = place_of(T, N, D, C, BD)
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    square = i * C + j
    real = i < T - first
    d = (block * BD + tl.arange(0, BD))[None, :]
    DY = start_of(DY, b, first, n, yb, yt, yn)
    V = start_of(V, b, first, n, vb, vt, vn)
    dr, dk, through = across_chunks(DY, V, S, DS, i, real, d, place, yt, vt, D, E, C, BD, BE, HALF)
    live = real & (d < D)
    r = tl.load(start_of(R, b, first, n, rb, rt, rn) + i * rt + d, mask=live, other=0.0)
    k = tl.load(start_of(K, b, first, n, kb, kt, kn) + i * kt + d, mask=live, other=0.0)
    log_w = log_decays(start_of(G, b, first, n, gb, gt, gn) + i * gt + d, live)
    decay = decays(tl.load(M + LEVELS * C * C + square), log_w, HALF)
    r, k = beside(r, decay), beside(k, decay)
    dr *= decay
    dk *= decays(tl.load(M + (LEVELS + 1) * C * C + square), log_w, HALF)
    kept = k * dk
    shared = through * power(tl.sum(log_w, 0)) + tl.sum(kept, 0)
    change = r * dr - kept
    DA += place * C * C
    if mild(log_w, HALF):
        x = centred(tl.load(M + LEVELS * C * C + square), log_w, HALF)
        rise, fall = power(x), power(-x)
        late, early = narrow(r * rise, HALF), narrow(k * fall, HALF)
        below = masked(narrow(tl.load(DA + square), HALF), tl.load(MB + LEVELS * C * C + square), HALF)
        dlate = tl.dot(below, early, input_precision="tf32x3")
        dearly = tl.dot(tl.trans(below), late, input_precision="tf32x3")
        change += dlate * late.to(tl.float32) - dearly * early.to(tl.float32)
        dr += dlate * rise
        dk += dearly * fall
    else:
        own = tl.load(DA + i * (C + 1)).to(tl.float32)
        dr += own * k
        dk += own * r
        da = narrow(tl.load(DA + square), HALF)
        for level in range(LEVELS):
            right = ((i >> level) & 1).to(tl.float32)
            left = 1.0 - right
            decay = decays(tl.load(M + level * C * C + square), log_w, HALF)
            half = narrow(tl.where(right > 0.5, r, k) * decay, HALF)
            paired = masked(da, tl.load(MB + (LEVELS + 2 + level) * C * C + square), HALF)
            dhalf = tl.dot(paired, half, input_precision="tf32x3")
            change += dhalf * half.to(tl.float32) * (right - left)
            dhalf *= decay
            dr += dhalf * right
            dk += dhalf * left
    at = i * (N * D) + d
    DR = start_of(DR, b, first, n, T * N * D, N * D, D)
    DK = start_of(DK, b, first, n, T * N * D, N * D, D)
    DG = start_of(DG, b, first, n, T * N * D, N * D, D)
    tl.store(DR + at, dr.to(DR.dtype.element_ty), mask=live)
    tl.store(DK + at, dk.to(DK.dtype.element_ty), mask=live)
    dg = tl.zeros((C, BD), tl.float32) + shared[None, :]
    dg = summed_twice(tl.trans(tl.load(MB + LEVELS * C * C + square)), change, dg, HALF)
    # Read again: kept in registers it would crowd out the loop.
    log_w = log_decays(start_of(G, b, first, n, gb, gt, gn) + i * gt + d, live)
    dg = tl.where(log_w <= NEVER, 0.0, dg)
    tl.store(DG + at, dg.to(DG.dtype.element_ty), mask=live)
