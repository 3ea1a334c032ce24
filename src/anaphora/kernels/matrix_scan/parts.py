# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""What the Triton programs of the matrix scan share: sums of logarithms over segments of a chunk, and reads of a block.

Axes: i, j, s steps of a chunk; d and e the sides of a state.
"""

from __future__ import annotations

import triton
import triton.language as tl

NEVER = tl.constexpr(
    -1e30
)  # stands for log 0: its exponential and those of its sums are 0, and 0 · NEVER is 0


@triton.jit
def log_decays(at, mask):
    """log w of a block; NEVER for −∞. NaN stays."""
    x = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    return tl.where(x < NEVER, NEVER, x)


@triton.jit
def narrow(x, HALF: tl.constexpr):
    """What the matrix units multiply: bfloat16 or float32."""
    return x.to(tl.bfloat16) if HALF else x.to(tl.float32)


@triton.jit
def summed(which, x, HALF: tl.constexpr):
    """Σ_s which[i, s] x[s, d]: ``(i, d)`` in float32. bfloat16 products take x in two pieces, 16 bits of its fraction."""
    ones = tl.where(which, 1.0, 0.0)
    if HALF:
        high = x.to(tl.bfloat16)
        low = (x - high.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(ones.to(tl.bfloat16), low)
        return tl.dot(ones.to(tl.bfloat16), high, total)
    else:
        return tl.dot(ones, x, input_precision="tf32x3")


@triton.jit
def segment(i, s, level):
    """Which steps s lie between step i and the middle of its block of 2·2^level steps: after the middle up to i itself,
    or after i up to the middle."""
    right = ((i >> level) & 1) == 1
    same = ((i ^ s) >> level) == 0
    return same & ((right & (s <= i)) | ((right == 0) & (s > i)))


@triton.jit
def paired(i, j, level):
    """Whether the steps lie in different halves of one block of 2·2^level steps."""
    return ((i ^ j) >> level) == 1
