# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Decays that are one number per head: they factor out of the scores, A_ij = r_i · k_j · w_{j+1}⋯w_i."""

from __future__ import annotations

import triton
import triton.language as tl

from anaphora.ops.matrix_scan.parts import (  # fmt: skip
    across_chunks,
    between,
    log_decays,
    narrow,
    place_of,
    power,
    since_start,
    start_of,
    summed,
    until_end,
)


@triton.jit
def outputs(
    R, K, V, G, M, S, A, Y, T, N, D, E, rb, rt, rn, kb, kt, kn, vb, vt, vn, gb, gt, gn,
    C: tl.constexpr, LEVELS: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, SAVE: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """As `forward.outputs`; G ``(B, T, N)``."""
    block, place, b, n, first = place_of(T, N, E, C, BE)
    s = tl.arange(0, C)
    i, j = s[:, None], s[None, :]
    real = i < T - first
    e = (block * BE + tl.arange(0, BE))[None, :]
    R = start_of(R, b, first, n, rb, rt, rn)
    K = start_of(K, b, first, n, kb, kt, kn)
    log_w = log_decays(start_of(G, b, first, n, gb, gt, gn) + s * gt, s < T - first)
    y = tl.zeros((C, BE), tl.float32)
    scores = tl.zeros((C, C), tl.float32)
    for d0 in range(0, D, BD):
        d = (d0 + tl.arange(0, BD))[None, :]
        r = tl.load(R + i * rt + d, mask=real & (d < D), other=0.0)
        k = tl.load(K + i * kt + d, mask=real & (d < D), other=0.0)
        at = S + place * D * E + tl.trans(d) * E + e
        before = tl.load(at, mask=tl.trans(d < D) & (e < E), other=0.0)
        r = narrow(r, HALF)
        scores = tl.dot(r, tl.trans(narrow(k, HALF)), scores, input_precision="tf32x3")
        y = tl.dot(r, narrow(before, HALF), y, input_precision="tf32x3")
    y *= since_start(log_w, C)[:, None]
    scores *= between(log_w, C, HALF)
    if SAVE and block == 0:
        tl.store(A + place * C * C + i * C + j, scores.to(A.dtype.element_ty))
    v = tl.load(start_of(V, b, first, n, vb, vt, vn) + i * vt + e, mask=real & (e < E), other=0.0)
    y = tl.dot(narrow(scores, HALF), narrow(v, HALF), y, input_precision="tf32x3")
    Y = start_of(Y, b, first, n, T * N * E, N * E, E)
    tl.store(Y + i * (N * E) + e, y.to(Y.dtype.element_ty), mask=real & (e < E))


@triton.jit
def keys(
    R, K, V, G, M, MB, S, DA, DY, DS, DR, DK, DG, T, N, D, E,
    rb, rt, rn, kb, kt, kn, vb, vt, vn, gb, gt, gn, yb, yt, yn,
    C: tl.constexpr, LEVELS: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """As `backward.keys`; DG ``(B, T, N, blocks)``: every block of channels has a share of dlog w."""
    block, place, b, n, first = place_of(T, N, D, C, BD)
    s = tl.arange(0, C)
    i, j = s[:, None], s[None, :]
    real = i < T - first
    d = (block * BD + tl.arange(0, BD))[None, :]
    DY = start_of(DY, b, first, n, yb, yt, yn)
    V = start_of(V, b, first, n, vb, vt, vn)
    dr, dk, through = across_chunks(DY, V, S, DS, i, real, d, place, yt, vt, D, E, C, BD, BE, HALF)
    live = real & (d < D)
    r = narrow(tl.load(start_of(R, b, first, n, rb, rt, rn) + i * rt + d, mask=live, other=0.0), HALF)
    k = narrow(tl.load(start_of(K, b, first, n, kb, kt, kn) + i * kt + d, mask=live, other=0.0), HALF)
    log_w = log_decays(start_of(G, b, first, n, gb, gt, gn) + s * gt, s < T - first)
    dr *= since_start(log_w, C)[:, None]
    dk *= until_end(log_w, C)[:, None]
    # Σ over what reads the state before at or after step s, and over what was written before s and lasts to the end
    read, kept = tl.sum(r.to(tl.float32) * dr, 1), tl.sum(k.to(tl.float32) * dk, 1)
    dg = tl.sum(tl.where(i >= j, read[:, None], 0.0) + tl.where(i < j, kept[:, None], 0.0), 0)
    dg += tl.sum(through, 0) * power(tl.sum(log_w, 0))
    ds = tl.load(DA + place * C * C + i * C + j).to(tl.float32) * between(log_w, C, HALF)
    products = tl.dot(r, tl.trans(k), input_precision="tf32x3")
    within = tl.zeros((C, C), tl.float32)  # (s, j): Σ over i ≥ s
    within = summed(tl.where(j >= i, 1.0, 0.0), tl.where(i > j, ds * products, 0.0), within, HALF)
    within = tl.sum(tl.where(j < i, within, 0.0), 1)
    dr = tl.dot(narrow(ds, HALF), k, dr, input_precision="tf32x3")
    dk = tl.dot(narrow(tl.trans(ds), HALF), r, dk, input_precision="tf32x3")
    at = i * (N * D) + d
    DR = start_of(DR, b, first, n, T * N * D, N * D, D)
    DK = start_of(DK, b, first, n, T * N * D, N * D, D)
    tl.store(DR + at, dr.to(DR.dtype.element_ty), mask=live)
    tl.store(DK + at, dk.to(DK.dtype.element_ty), mask=live)
    blocks = tl.cdiv(D, BD)
    DG = start_of(DG, b, first, n, T * N * blocks, N * blocks, blocks)
    tl.store(DG + s * (N * blocks) + block, dg + within, mask=s < T - first)
