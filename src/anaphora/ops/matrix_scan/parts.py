# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""What the Triton programs of the matrix scan share: decays over segments of a chunk, and what the matrix units take.

Logarithms are to the base 2. Which steps a sum runs over is a matrix of ones and zeros (`masks`), so that the matrix units add.
Axes: i, j, s steps of a chunk; d and e the sides of a state.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

NEVER = tl.constexpr(-6e4)  # stands for log 0: 2^NEVER is 0 in float32, 0 · NEVER is 0, and float16 has it
FURTHEST = tl.constexpr(
    120.0
)  # a chunk's decay, as a power of 2, whose root and inverse root both are in range
LOG2_E = tl.constexpr(1.4426950408889634)
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)  # without libdevice


@triton.jit
def place_of(T, N, WIDTH, C: tl.constexpr, BLOCK: tl.constexpr):
    """Of a program for each block of a side, chunk, head and row, in this order: the block, the number of the chunk among
    those of all heads, the row, the head, and the chunk's first step."""
    blocks, chunks = tl.cdiv(WIDTH, BLOCK), tl.cdiv(T, C)
    block, place = tl.program_id(0) % blocks, (tl.program_id(0) // blocks).to(tl.int64)
    both = place // chunks
    return block, place, both // N, both % N, (place % chunks).to(tl.int32) * C


@triton.jit
def start_of(X, b, first, n, xb, xt, xn):
    """Where step ``first`` of a row and head lies: from there 32 bits count the steps of a chunk."""
    return X + b * xb + first.to(tl.int64) * xt + n * xn


@triton.jit
def log_decays(at, mask):
    """log₂ w of a block; NEVER for −∞. NaN stays."""
    x = tl.load(at, mask=mask, other=0.0).to(tl.float32) * LOG2_E
    return tl.where(x < NEVER, NEVER, x)


@triton.jit
def power(x):
    """2^x; 0 below 2^−126, which saves half of its instructions."""
    if INTERPRETED:
        return tl.exp2(x)
    else:
        return libdevice.exp2(x)


@triton.jit
def narrow(x, HALF: tl.constexpr):
    """What the matrix units multiply: bfloat16 or float32."""
    return x.to(tl.bfloat16) if HALF else x.to(tl.float32)


@triton.jit
def decays(ones, log_w, HALF: tl.constexpr):
    """Products of w over the steps s where ones[i, s]: ``(i, d)``.

    Beside bfloat16 the logarithms are rounded to float16: an error of 2^−12 |x| 2^−x, below that of the factors.
    """
    if HALF:
        return power(tl.dot(ones.to(tl.float16), log_w.to(tl.float16)))
    else:
        return power(tl.dot(ones.to(tl.float32), log_w, input_precision="tf32x3"))


@triton.jit
def mild(log_w, HALF: tl.constexpr):
    """Whether no channel of a chunk decays so far that its exponents, taken from the middle, leave the range of float32
    (beside bfloat16) or blur its last digits (beside float32)."""
    return tl.min(tl.sum(log_w, 0), 0) > (-FURTHEST if HALF else -FURTHEST / 8)


@triton.jit
def centred(ones, log_w, HALF: tl.constexpr):
    """x_i = log₂(w_1⋯w_i) less half of the whole chunk's: the decay from j to i is 2^x_i · 2^−x_j."""
    if HALF:
        sums = tl.dot(ones.to(tl.float16), log_w.to(tl.float16))
    else:
        sums = tl.dot(ones.to(tl.float32), log_w, input_precision="tf32x3")
    return sums - 0.5 * tl.sum(log_w, 0)[None, :]


@triton.jit
def beside(x, decay):
    """x in float32, laid out over the threads like ``decay``: else a loop would move it through shared memory each time.
    A decay is never negative, which the compiler does not know."""
    return tl.where(decay < 0.0, 0.0, x.to(tl.float32))


@triton.jit
def masked(x, ones, HALF: tl.constexpr):
    """x where ones, else 0."""
    if HALF and not INTERPRETED:  # which multiplies bfloat16 as whole numbers
        return x * ones.to(tl.bfloat16)
    else:
        return narrow(x.to(tl.float32) * ones.to(tl.float32), HALF)


@triton.jit
def summed(ones, x, total, HALF: tl.constexpr):
    """total + Σ_s ones[i, s] x[s, d]: ``(i, d)``."""
    if HALF:
        return tl.dot(ones.to(tl.bfloat16), x.to(tl.bfloat16), total)
    else:
        return tl.dot(ones.to(tl.float32), x, total, input_precision="tf32x3")


@triton.jit
def summed_twice(ones, x, total, HALF: tl.constexpr):
    """The same with 16 bits of x's fraction beside bfloat16, for sums in which terms cancel."""
    if HALF:
        high = x.to(tl.bfloat16)
        total = tl.dot(ones.to(tl.bfloat16), (x - high.to(tl.float32)).to(tl.bfloat16), total)
        return tl.dot(ones.to(tl.bfloat16), high, total)
    else:
        return summed(ones, x, total, HALF)


@triton.jit
def since_start(log_w, C: tl.constexpr):
    """w_1⋯w_i of decays by head: ``(C,)``."""
    i, s = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    return power(tl.sum(tl.where(s <= i, log_w[None, :], 0.0), 1))


@triton.jit
def until_end(log_w, C: tl.constexpr):
    """w_{i+1}⋯w_C of decays by head: ``(C,)``."""
    i, s = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    return power(tl.sum(tl.where(s > i, log_w[None, :], 0.0), 1))


@triton.jit
def between(log_w, C: tl.constexpr, HALF: tl.constexpr):
    """w_{j+1}⋯w_i of decays by head at ``(i, j)``; 0 above the diagonal."""
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    ones = tl.where(j <= i, 1.0, 0.0)
    return tl.where(i >= j, decays(ones, tl.where(i > j, log_w[:, None], 0.0), HALF), 0.0)


@triton.jit
def across_chunks(
    DY, V, S, DS, i, real, d, place, yt, vt, D, E,
    C: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """What a chunk's gradients have from other chunks, before decays: dr = dy Sᵀ and dk = v dSᵀ ``(C, BD)``, and Σ_e S ∘ dS
    ``(BD,)``. S is the state before the chunk, dS the gradient of the state after it; ``d`` are the block's channels."""
    dr = tl.zeros((C, BD), tl.float32)
    dk = tl.zeros((C, BD), tl.float32)
    through = tl.zeros((BD,), tl.float32)
    S += place * D * E + tl.trans(d) * E
    DS += place * D * E + tl.trans(d) * E
    for e0 in range(0, E, BE):
        e = (e0 + tl.arange(0, BE))[None, :]
        inside = tl.trans(d < D) & (e < E)
        dy = narrow(tl.load(DY + i * yt + e, mask=real & (e < E), other=0.0), HALF)
        v = narrow(tl.load(V + i * vt + e, mask=real & (e < E), other=0.0), HALF)
        before = narrow(tl.load(S + e, mask=inside, other=0.0), HALF)
        after = narrow(tl.load(DS + e, mask=inside, other=0.0), HALF)
        dr = tl.dot(dy, tl.trans(before), dr, input_precision="tf32x3")
        dk = tl.dot(v, tl.trans(after), dk, input_precision="tf32x3")
        through += tl.sum(before.to(tl.float32) * after.to(tl.float32), 1)
    return dr, dk, through
