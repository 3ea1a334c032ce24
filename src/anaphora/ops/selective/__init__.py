"""Mamba's selective scan: an expanded diagonal state whose values at all steps are never stored.

    h_t = exp(Δ_t A) ∘ h_{t−1} + (Δ_t ∘ u_t) B_tᵀ,        y_t = h_t C_t

Axes: B batch, T time, H channels, N numbers of a channel's state.
"""

from __future__ import annotations

from torch import Tensor

from anaphora.ops.selective import gpu, native
from anaphora.ops.selective.chunks import by_chunks

__all__ = ["selective_scan"]


def selective_scan(
    u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """All steps: u, delta ``(B, T, H)``, rate A ``(H, N)``, b, c ``(B, T, N)``, state ``(B, H, N)``: y ``(B, T, H)`` and the
    last state. By a kernel on a GPU and on the CPU, where there is one; else by torch in chunks of steps."""
    rate = rate.to(state.dtype)
    if gpu.can_run(u, delta, rate, b, c, state):
        return gpu.selective_scan(u, delta, rate, b, c, state)
    if native.can_run(u, delta, rate, b, c, state):
        return native.selective_scan(u, delta, rate, b, c, state)
    return by_chunks(u, delta, rate, b, c, state)
