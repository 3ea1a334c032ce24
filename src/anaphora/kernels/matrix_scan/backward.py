# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Gradients of all chunks, given the states before and the gradients of the states after each."""

from __future__ import annotations

import triton
import triton.language as tl

from anaphora.kernels.matrix_scan.parts import decays, log_decays, narrow, power, summed, until_end


@triton.jit
def values(
    K, G, M, A, DY, DS, DV, T, N, D, E, kb, kt, kn, gb, gt, gn, yb, yt, yn,
    C: tl.constexpr, LEVELS: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BY_HEAD: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """A block ``(C, BE)`` of dv_j = Σ_{i≥j} A_ij dy_i + dSᵀ (k_j ∘ w_{j+1}⋯w_C)."""
    blocks, chunks = tl.cdiv(E, BE), tl.cdiv(T, C)
    block, place = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    row, chunk = place // chunks, place % chunks
    b, n = row // N, row % N
    square = tl.arange(0, C)[:, None] * C + tl.arange(0, C)[None, :]
    t = chunk * C + tl.arange(0, C)
    e = block * BE + tl.arange(0, BE)
    K += b * kb + n * kn
    G += b * gb + n * gn
    live_e = (t < T)[:, None] & (e < E)[None, :]
    dy = tl.load(DY + b * yb + n * yn + t[:, None] * yt + e[None, :], mask=live_e, other=0.0)
    scores = narrow(tl.load(A + place * C * C + square), HALF)
    dv = tl.dot(tl.trans(scores), narrow(dy, HALF), input_precision="tf32x3")
    if BY_HEAD:
        decay = until_end(log_decays(G + t * gt, t < T), C)[:, None]
    else:
        ones = tl.load(M + (LEVELS + 1) * C * C + square)
    for d0 in range(0, D, BD):
        d = d0 + tl.arange(0, BD)
        live = (t < T)[:, None] & (d < D)[None, :]
        k = tl.load(K + t[:, None] * kt + d[None, :], mask=live, other=0.0).to(tl.float32)
        at = DS + place * D * E + d[:, None] * E + e[None, :]
        after = tl.load(at, mask=(d < D)[:, None] & (e < E)[None, :], other=0.0)
        if BY_HEAD:
            kept = k * decay
        else:
            kept = k * decays(ones, log_decays(G + t[:, None] * gt + d[None, :], live), HALF)
        dv = tl.dot(narrow(kept, HALF), narrow(after, HALF), dv, input_precision="tf32x3")
    tl.store(DV + ((b * T + t[:, None]) * N + n) * E + e[None, :], dv.to(DV.dtype.element_ty), mask=live_e)


@triton.jit
def keys(
    R, K, V, G, M, MB, S, DY, DS, DR, DK, DG, T, N, D, E,
    rb, rt, rn, kb, kt, kn, vb, vt, vn, gb, gt, gn, yb, yt, yn,
    C: tl.constexpr, LEVELS: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """A block ``(C, BD)`` of dr, dk and dlog w; decays by channel.

    Each sum of logarithms X = M log w of the forward pass has dX = r ∘ dr (or k ∘ dk) of its own terms, and
    dlog w = Σ Mᵀ dX: no difference of long sums here either.
    """
    blocks, chunks = tl.cdiv(D, BD), tl.cdiv(T, C)
    block, place = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    row, chunk = place // chunks, place % chunks
    b, n = row // N, row % N
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    square, apart = i * C + j, i ^ j
    t = chunk * C + tl.arange(0, C)
    d = block * BD + tl.arange(0, BD)
    DY += b * yb + n * yn
    V += b * vb + n * vn
    ds = tl.zeros((C, C), tl.float32)  # of the scores
    dr = tl.zeros((C, BD), tl.float32)
    dk = tl.zeros((C, BD), tl.float32)
    through = tl.zeros((BD,), tl.float32)  # Σ_e of the state before times the gradient of the state after
    for e0 in range(0, E, BE):
        e = e0 + tl.arange(0, BE)
        live_e = (t < T)[:, None] & (e < E)[None, :]
        real = (d < D)[:, None] & (e < E)[None, :]
        at = place * D * E + d[:, None] * E + e[None, :]
        dy = narrow(tl.load(DY + t[:, None] * yt + e[None, :], mask=live_e, other=0.0), HALF)
        v = narrow(tl.load(V + t[:, None] * vt + e[None, :], mask=live_e, other=0.0), HALF)
        before = narrow(tl.load(S + at, mask=real, other=0.0), HALF)
        after = narrow(tl.load(DS + at, mask=real, other=0.0), HALF)
        ds = tl.dot(dy, tl.trans(v), ds, input_precision="tf32x3")
        dr = tl.dot(dy, tl.trans(before), dr, input_precision="tf32x3")
        dk = tl.dot(v, tl.trans(after), dk, input_precision="tf32x3")
        through += tl.sum(before.to(tl.float32) * after.to(tl.float32), 1)
    live = (t < T)[:, None] & (d < D)[None, :]
    r = tl.load(R + b * rb + n * rn + t[:, None] * rt + d[None, :], mask=live, other=0.0)
    k = tl.load(K + b * kb + n * kn + t[:, None] * kt + d[None, :], mask=live, other=0.0)
    log_w = log_decays(G + b * gb + n * gn + t[:, None] * gt + d[None, :], live)
    dg = tl.zeros((C, BD), tl.float32) + (through * power(tl.sum(log_w, 0)))[None, :]
    dr *= decays(tl.load(M + LEVELS * C * C + square), log_w, HALF)
    dg = summed(tl.trans(tl.load(MB + LEVELS * C * C + square)), r.to(tl.float32) * dr, dg, HALF)
    dk *= decays(tl.load(M + (LEVELS + 1) * C * C + square), log_w, HALF)
    dg = summed(tl.trans(tl.load(MB + (LEVELS + 1) * C * C + square)), k.to(tl.float32) * dk, dg, HALF)
    own = tl.sum(tl.where(i == j, ds, 0.0), 1)[:, None]
    dr += own * k.to(tl.float32)
    dk += own * r.to(tl.float32)
    ds = narrow(tl.where(i > j, ds, 0.0), HALF)
    ds += tl.trans(ds)
    for level in range(LEVELS):
        right = ((i >> level) & 1) == 1
        decay = decays(tl.load(M + level * C * C + square), log_w, HALF)
        half = narrow(tl.where(right, r, k).to(tl.float32) * decay, HALF)
        paired = tl.where((apart >> level) == 1, ds, 0.0)  # in different halves of one block
        dhalf = tl.dot(paired, half, input_precision="tf32x3")
        dg = summed(tl.trans(tl.load(MB + level * C * C + square)), dhalf * half.to(tl.float32), dg, HALF)
        dhalf *= decay
        dr += tl.where(right, dhalf, 0.0)
        dk += tl.where(right, 0.0, dhalf)
    at = ((b * T + t[:, None]) * N + n) * D + d[None, :]
    tl.store(DR + at, dr.to(DR.dtype.element_ty), mask=live)
    tl.store(DK + at, dk.to(DK.dtype.element_ty), mask=live)
    tl.store(DG + at, dg.to(DG.dtype.element_ty), mask=live)
