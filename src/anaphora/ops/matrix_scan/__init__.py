"""Recurrences whose state is a matrix:

    S_t = diag(w_t) S_{t−1} + b_t (a_tᵀ S_{t−1}) + k_t v_tᵀ,        y_t = S_tᵀ r_t

Special cases: linear attention (w = 1), RetNet, Mamba-2 and mLSTM (w one number per head), gated linear attention (w per
channel), the delta rule (a = k, b = −βk) and RWKV-7 (everything). `scan` chooses what computes it.

On a GPU cases without a and b are fused. A sequence is cut into chunks of C steps. One program per block of a state walks over
the chunks and writes down the state before each (`states`); then all chunks are computed side by side (`forward`, `backward`).
Within a chunk

    y_i = Σ_{j≤i} A_ij v_j + (r_i ∘ w_1⋯w_i)ᵀ S,        A_ij = Σ_d r_id k_jd w_{j+1,d}⋯w_{i,d}

Decays by channel do not factor out of A, and quotients of long products overflow. So A is made of halves: for m = 1, 2, 4, …
the right half of every block of 2m steps reads what the left half wrote. There the decay is that from the left step to the
middle times that from the middle to the right step. Each is the exponential of a sum of logarithms that is summed directly,
never a difference of two sums: no exponent is positive where the decays are at most 1, and decays of exactly 0 are exact.
One product per m on the matrix units, log₂ C in all, replaces the loop over pairs of steps. Where a chunk's decays are mild,
as those of trained layers are, they do factor: r_i and k_j are scaled by the decays to and from the middle of the chunk,
whose exponents are in range, and A is a single product. Each block of channels decides by its own decays.
"""

from anaphora.ops.matrix_scan.launch import serves
from anaphora.ops.matrix_scan.scan import contract, matrix_scan, matrix_step, outer, signed_scan

__all__ = ["contract", "matrix_scan", "matrix_step", "outer", "serves", "signed_scan"]
