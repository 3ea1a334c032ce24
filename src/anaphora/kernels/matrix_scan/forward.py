# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Outputs of all chunks, given the states before each."""

from __future__ import annotations

import triton
import triton.language as tl

from anaphora.kernels.matrix_scan.parts import log_decays, narrow, paired, segment, summed


@triton.jit
def outputs(
    R, K, V, G, S, A, Y, T, N, D, E, LEVELS, rb, rt, rn, kb, kt, kn, vb, vt, vn, gb, gt, gn,
    C: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr,
    SAVE: tl.constexpr,
):  # fmt: skip
    """A block ``(C, BE)`` of Y ``(B, T, N, E)``, and the scores A ``(B·N, chunks, C, C)`` if they are to be saved."""
    blocks, chunks = tl.cdiv(E, BE), tl.cdiv(T, C)
    block, place = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    row, chunk = place // chunks, place % chunks
    b, n = row // N, row % N
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    t = chunk * C + tl.arange(0, C)
    e = block * BE + tl.arange(0, BE)
    y = tl.zeros((C, BE), tl.float32)
    scores = tl.zeros((C, C), tl.float32)
    for d0 in range(0, D, BD):
        d = d0 + tl.arange(0, BD)
        live = (t < T)[:, None] & (d < D)[None, :]
        r = tl.load(R + b * rb + n * rn + t[:, None] * rt + d[None, :], mask=live, other=0.0).to(tl.float32)
        k = tl.load(K + b * kb + n * kn + t[:, None] * kt + d[None, :], mask=live, other=0.0).to(tl.float32)
        log_w = log_decays(G + b * gb + n * gn + t[:, None] * gt + d[None, :], live)
        scores += tl.where(i == j, tl.sum(r * k, 1)[:, None], 0.0)
        for level in range(LEVELS):
            right = ((i >> level) & 1) == 1
            decay = tl.exp(summed(segment(i, j, level), log_w, HALF))
            half = narrow(tl.where(right, r, k) * decay, HALF)
            found = tl.dot(half, tl.trans(half), input_precision=PRECISION)
            scores += tl.where(paired(i, j, level) & (i > j), found, 0.0)
        late = narrow(r * tl.exp(summed(j <= i, log_w, HALF)), HALF)
        at = S + place * D * E + d[:, None] * E + e[None, :]
        before = tl.load(at, mask=(d < D)[:, None] & (e < E)[None, :], other=0.0)
        y = tl.dot(late, narrow(before, HALF), y, input_precision=PRECISION)
    if SAVE and block == 0:
        tl.store(A + place * C * C + i * C + j, scores.to(A.dtype.element_ty))
    live = (t < T)[:, None] & (e < E)[None, :]
    v = tl.load(V + b * vb + n * vn + t[:, None] * vt + e[None, :], mask=live, other=0.0)
    y = tl.dot(narrow(scores, HALF), narrow(v, HALF), y, input_precision=PRECISION)
    tl.store(Y + ((b * T + t[:, None]) * N + n) * E + e[None, :], y.to(Y.dtype.element_ty), mask=live)
