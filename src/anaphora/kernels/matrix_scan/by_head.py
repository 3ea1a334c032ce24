# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Decays that are one number per head: they factor out of the scores, A_ij = r_i · k_j · w_{j+1}⋯w_i."""

from __future__ import annotations

import triton
import triton.language as tl

from anaphora.kernels.matrix_scan.parts import (
    between,
    log_decays,
    narrow,
    power,
    since_start,
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
    blocks, chunks = tl.cdiv(E, BE), tl.cdiv(T, C)
    block, place = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    row, chunk = place // chunks, place % chunks
    b, n = row // N, row % N
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    t = chunk * C + tl.arange(0, C)
    e = block * BE + tl.arange(0, BE)
    log_w = log_decays(G + b * gb + n * gn + t * gt, t < T)
    y = tl.zeros((C, BE), tl.float32)
    scores = tl.zeros((C, C), tl.float32)
    for d0 in range(0, D, BD):
        d = d0 + tl.arange(0, BD)
        live = (t < T)[:, None] & (d < D)[None, :]
        r = tl.load(R + b * rb + n * rn + t[:, None] * rt + d[None, :], mask=live, other=0.0)
        k = tl.load(K + b * kb + n * kn + t[:, None] * kt + d[None, :], mask=live, other=0.0)
        at = S + place * D * E + d[:, None] * E + e[None, :]
        before = tl.load(at, mask=(d < D)[:, None] & (e < E)[None, :], other=0.0)
        r = narrow(r, HALF)
        scores = tl.dot(r, tl.trans(narrow(k, HALF)), scores, input_precision="tf32x3")
        y = tl.dot(r, narrow(before, HALF), y, input_precision="tf32x3")
    y *= since_start(log_w, C)[:, None]
    scores *= between(log_w, C, HALF)
    if SAVE and block == 0:
        tl.store(A + place * C * C + i * C + j, scores.to(A.dtype.element_ty))
    live = (t < T)[:, None] & (e < E)[None, :]
    v = tl.load(V + b * vb + n * vn + t[:, None] * vt + e[None, :], mask=live, other=0.0)
    y = tl.dot(narrow(scores, HALF), narrow(v, HALF), y, input_precision="tf32x3")
    tl.store(Y + ((b * T + t[:, None]) * N + n) * E + e[None, :], y.to(Y.dtype.element_ty), mask=live)


@triton.jit
def keys(
    R, K, V, G, M, MB, S, DY, DS, DR, DK, DG, T, N, D, E,
    rb, rt, rn, kb, kt, kn, vb, vt, vn, gb, gt, gn, yb, yt, yn,
    C: tl.constexpr, LEVELS: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """As `backward.keys`; DG ``(B, T, N, blocks)``: every block of channels has a share of dlog w."""
    blocks, chunks = tl.cdiv(D, BD), tl.cdiv(T, C)
    block, place = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    row, chunk = place // chunks, place % chunks
    b, n = row // N, row % N
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    t = chunk * C + tl.arange(0, C)
    d = block * BD + tl.arange(0, BD)
    ds = tl.zeros((C, C), tl.float32)  # of the scores
    dr = tl.zeros((C, BD), tl.float32)
    dk = tl.zeros((C, BD), tl.float32)
    through = tl.zeros((BD,), tl.float32)
    for e0 in range(0, E, BE):
        e = e0 + tl.arange(0, BE)
        live_e = (t < T)[:, None] & (e < E)[None, :]
        real = (d < D)[:, None] & (e < E)[None, :]
        at = place * D * E + d[:, None] * E + e[None, :]
        dy = narrow(
            tl.load(DY + b * yb + n * yn + t[:, None] * yt + e[None, :], mask=live_e, other=0.0), HALF
        )
        v = narrow(tl.load(V + b * vb + n * vn + t[:, None] * vt + e[None, :], mask=live_e, other=0.0), HALF)
        before = narrow(tl.load(S + at, mask=real, other=0.0), HALF)
        after = narrow(tl.load(DS + at, mask=real, other=0.0), HALF)
        ds = tl.dot(dy, tl.trans(v), ds, input_precision="tf32x3")
        dr = tl.dot(dy, tl.trans(before), dr, input_precision="tf32x3")
        dk = tl.dot(v, tl.trans(after), dk, input_precision="tf32x3")
        through += tl.sum(before.to(tl.float32) * after.to(tl.float32), 1)
    live = (t < T)[:, None] & (d < D)[None, :]
    r = narrow(tl.load(R + b * rb + n * rn + t[:, None] * rt + d[None, :], mask=live, other=0.0), HALF)
    k = narrow(tl.load(K + b * kb + n * kn + t[:, None] * kt + d[None, :], mask=live, other=0.0), HALF)
    log_w = log_decays(G + b * gb + n * gn + t * gt, t < T)
    dr *= since_start(log_w, C)[:, None]
    dk *= until_end(log_w, C)[:, None]
    # Σ over what reads the state before at or after step s, and over what was written before s and lasts to the end
    read, kept = tl.sum(r.to(tl.float32) * dr, 1), tl.sum(k.to(tl.float32) * dk, 1)
    dg = tl.sum(tl.where(i >= j, read[:, None], 0.0) + tl.where(i < j, kept[:, None], 0.0), 0)
    dg += tl.sum(through, 0) * power(tl.sum(log_w, 0))
    ds *= between(log_w, C, HALF)
    products = tl.dot(r, tl.trans(k), input_precision="tf32x3")
    within = tl.zeros((C, C), tl.float32)  # (s, j): Σ over i ≥ s
    within = summed(tl.where(j >= i, 1.0, 0.0), tl.where(i > j, ds * products, 0.0), within, HALF)
    within = tl.sum(tl.where(j < i, within, 0.0), 1)
    dr = tl.dot(narrow(ds, HALF), k, dr, input_precision="tf32x3")
    dk = tl.dot(narrow(tl.trans(ds), HALF), r, dk, input_precision="tf32x3")
    at = ((b * T + t[:, None]) * N + n) * D + d[None, :]
    tl.store(DR + at, dr.to(DR.dtype.element_ty), mask=live)
    tl.store(DK + at, dk.to(DK.dtype.element_ty), mask=live)
    tl.store(DG + ((b * T + t) * N + n) * blocks + block, dg + within, mask=t < T)
