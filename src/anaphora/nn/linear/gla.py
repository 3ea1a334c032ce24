"""Gated linear attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.linear.layer import EPSILON, LinearLayer, States

_SHARPNESS = 16  # τ: gates begin near 1


class GLA(LinearLayer):
    """Gated linear attention (Yang et al. 2024): every channel of the keys forgets as the input says.

        q_t, k_t = W_q x_t / √D, W_k x_t,   v_t = W_v x_t,   α_t = σ(W₂ W₁ x_t + b)^(1/16)
        S_t = diag(α_t) S_{t−1} + k_t v_tᵀ,   y_t = S_tᵀ q_t
        out_t = W_o (swish(W_g x_t) ∘ norm(y_t))

    ``rank`` is that of W₂ W₁. Keys are half as wide as values. State: S ``(B, heads, D, E)``.

    >>> an.nn.linear.GLA(16, heads=2)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 4, *, rank: int = 16):
        super().__init__(width, heads)
        self.keys = max(1, width // heads // 2)
        self.query_key = nn.Linear(width, 2 * heads * self.keys, bias=False)
        self.value_gate = nn.Linear(width, 2 * width, bias=False)
        self.forget = nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, heads * self.keys))
        self.norm = nn.RMSNorm(width // heads, EPSILON)
        self.output = nn.Linear(width, width, bias=False)

    def initial_state(self, batch: int, like: Tensor) -> States:
        kind = torch.promote_types(like.dtype, torch.float32)
        return (like.new_zeros(batch, self.heads, self.keys, self.width // self.heads, dtype=kind),)

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        q, k = (self.split(part) for part in self.query_key(x).chunk(2, -1))
        v, gate = self.value_gate(x).chunk(2, -1)
        log_w = self.split(F.logsigmoid(self.forget(x).float() if x.dtype.itemsize < 4 else self.forget(x)))
        y, matrix = self.scan(q * self.keys**-0.5, k, self.split(v), log_w / _SHARPNESS, lengths, state[0])
        return self.output(F.silu(gate) * self.norm(y).flatten(-2)), (matrix,)
