# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Gradients of all chunks, given the states before and the gradients of the states after each."""

from __future__ import annotations

import triton
import triton.language as tl

from anaphora.kernels.matrix_scan.parts import log_decays, narrow, paired, segment, summed


@triton.jit
def values(
    K, G, A, DY, DS, DV, T, N, D, E, kb, kt, kn, gb, gt, gn, yb, yt, yn,
    C: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block ``(C, BE)`` of dv_j = Σ_{i≥j} A_ij dy_i + dSᵀ (k_j ∘ w_{j+1}⋯w_C)."""
    blocks, chunks = tl.cdiv(E, BE), tl.cdiv(T, C)
    block, place = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    row, chunk = place // chunks, place % chunks
    b, n = row // N, row % N
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    t = chunk * C + tl.arange(0, C)
    e = block * BE + tl.arange(0, BE)
    live_e = (t < T)[:, None] & (e < E)[None, :]
    dy = tl.load(DY + b * yb + n * yn + t[:, None] * yt + e[None, :], mask=live_e, other=0.0)
    # (j, i): the scores transposed, by their addresses
    scores = tl.load(A + place * C * C + j * C + i)
    dv = tl.dot(narrow(scores, HALF), narrow(dy, HALF), input_precision=PRECISION)
    for d0 in range(0, D, BD):
        d = d0 + tl.arange(0, BD)
        live = (t < T)[:, None] & (d < D)[None, :]
        k = tl.load(K + b * kb + n * kn + t[:, None] * kt + d[None, :], mask=live, other=0.0).to(tl.float32)
        log_w = log_decays(G + b * gb + n * gn + t[:, None] * gt + d[None, :], live)
        kept = narrow(k * tl.exp(summed(j > i, log_w, HALF)), HALF)
        at = DS + place * D * E + d[:, None] * E + e[None, :]
        after = tl.load(at, mask=(d < D)[:, None] & (e < E)[None, :], other=0.0)
        dv = tl.dot(kept, narrow(after, HALF), dv, input_precision=PRECISION)
    tl.store(DV + ((b * T + t[:, None]) * N + n) * E + e[None, :], dv.to(DV.dtype.element_ty), mask=live_e)


@triton.jit
def keys(
    R, K, V, G, S, DY, DS, DR, DK, DG, T, N, D, E, LEVELS,
    rb, rt, rn, kb, kt, kn, vb, vt, vn, gb, gt, gn, yb, yt, yn,
    C: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block ``(C, BD)`` of dr, dk and dlog w.

    Each sum of logarithms X = M log w of the forward pass has dX = r ∘ dr (or k ∘ dk) of its own terms, and
    dlog w = Σ Mᵀ dX: no difference of long sums here either.
    """
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
    through = tl.zeros((BD,), tl.float32)  # Σ_e of the state before times the gradient of the state after
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
        ds = tl.dot(dy, tl.trans(v), ds, input_precision=PRECISION)
        dr = tl.dot(dy, tl.trans(before), dr, input_precision=PRECISION)
        dk = tl.dot(v, tl.trans(after), dk, input_precision=PRECISION)
        through += tl.sum(before.to(tl.float32) * after.to(tl.float32), 1)
    live = (t < T)[:, None] & (d < D)[None, :]
    r = tl.load(R + b * rb + n * rn + t[:, None] * rt + d[None, :], mask=live, other=0.0).to(tl.float32)
    k = tl.load(K + b * kb + n * kn + t[:, None] * kt + d[None, :], mask=live, other=0.0).to(tl.float32)
    log_w = log_decays(G + b * gb + n * gn + t[:, None] * gt + d[None, :], live)
    dr *= tl.exp(summed(j <= i, log_w, HALF))
    dk *= tl.exp(summed(j > i, log_w, HALF))
    dg = summed(j >= i, r * dr, HALF) + summed(j < i, k * dk, HALF)
    dg += (through * tl.exp(tl.sum(log_w, 0)))[None, :]
    own = tl.sum(tl.where(i == j, ds, 0.0), 1)[:, None]
    dr += own * k
    dk += own * r
    ds = tl.where(i > j, ds, 0.0)
    ds += tl.trans(ds)
    for level in range(LEVELS):
        right = ((i >> level) & 1) == 1
        decay = tl.exp(summed(segment(i, j, level), log_w, HALF))
        half = narrow(tl.where(right, r, k) * decay, HALF)
        dhalf = tl.dot(narrow(tl.where(paired(i, j, level), ds, 0.0), HALF), half, input_precision=PRECISION)
        dr += tl.where(right, dhalf * decay, 0.0)
        dk += tl.where(right, 0.0, dhalf * decay)
        dg += summed(segment(j, i, level), dhalf * half.to(tl.float32), HALF)
    at = ((b * T + t[:, None]) * N + n) * D + d[None, :]
    tl.store(DR + at, dr.to(DR.dtype.element_ty), mask=live)
    tl.store(DK + at, dk.to(DK.dtype.element_ty), mask=live)
    tl.store(DG + at, dg.to(DG.dtype.element_ty), mask=live)
