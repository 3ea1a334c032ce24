# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The states before each chunk; reversed in time, the gradients of the states after each chunk."""

from __future__ import annotations

import triton
import triton.language as tl

from anaphora.ops.matrix_scan.parts import decays, log_decays, narrow, power, since_start, start_of, until_end


@triton.jit
def states(
    X, G, Z, M, FIRST, S, LAST, T, N, D, E, xb, xt, xn, gb, gt, gn, zb, zt, zn,
    C: tl.constexpr, LEVELS: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr,
    BY_HEAD: tl.constexpr, REVERSE: tl.constexpr, START: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """One block ``(BD, BE)`` of a state over all chunks: S ← w S + Σ_j (x_j ∘ w…) z_jᵀ.

    X ``(B, T, N, D)`` and Z ``(B, T, N, E)`` are k and v, and every step decays to the end of its chunk; reversed, they are
    r and dy, and every step decays from the start. FIRST, LAST ``(B, N, D, E)`` in float32; S ``(B·N, chunks, D, E)``.
    """
    blocks_d, blocks_e = tl.cdiv(D, BD), tl.cdiv(E, BE)
    block = tl.program_id(0) % (blocks_d * blocks_e)
    row = (tl.program_id(0) // (blocks_d * blocks_e)).to(tl.int64)
    b, n = row // N, row % N
    d = (block // blocks_e) * BD + tl.arange(0, BD)
    e = (block % blocks_e) * BE + tl.arange(0, BE)
    chunks = tl.cdiv(T, C)
    inside = (d < D)[:, None] & (e < E)[None, :]
    at = d[:, None] * E + e[None, :]
    i = tl.arange(0, C)
    square = i[:, None] * C + i[None, :]
    if not BY_HEAD:
        ones = tl.load(M + (LEVELS if REVERSE else LEVELS + 1) * C * C + square)
    state = tl.zeros((BD, BE), tl.float32)
    if START:
        state += tl.load(FIRST + row * D * E + at, mask=inside, other=0.0)
    for step in range(chunks):
        chunk = chunks - 1 - step if REVERSE else step
        tl.store(S + (row * chunks + chunk) * D * E + at, state.to(S.dtype.element_ty), mask=inside)
        first = chunk * C
        real = i < T - first
        live_d, live_e = real[:, None] & (d < D)[None, :], real[:, None] & (e < E)[None, :]
        x = tl.load(
            start_of(X, b, first, n, xb, xt, xn) + i[:, None] * xt + d[None, :], mask=live_d, other=0.0
        )
        z = tl.load(
            start_of(Z, b, first, n, zb, zt, zn) + i[:, None] * zt + e[None, :], mask=live_e, other=0.0
        )
        g = start_of(G, b, first, n, gb, gt, gn)
        if BY_HEAD:
            log_w = log_decays(g + i * gt, real)
            decay = (since_start(log_w, C) if REVERSE else until_end(log_w, C))[:, None]
            state *= power(tl.sum(log_w, 0))
        else:
            log_w = log_decays(g + i[:, None] * gt + d[None, :], live_d)
            decay = decays(ones, log_w, HALF)
            state *= power(tl.sum(log_w, 0))[:, None]
        x = narrow(x.to(tl.float32) * decay, HALF)
        state = tl.dot(tl.trans(x), narrow(z, HALF), state, input_precision="tf32x3")
    tl.store(LAST + row * D * E + at, state, mask=inside)
