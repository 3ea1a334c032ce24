"""Retention: linear attention that forgets at a fixed rate per head."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.linear.layer import LinearLayer, States, rms
from anaphora.nn.positions import rotary_rates, rotated


class RetNet(LinearLayer):
    """Multi-scale retention (Sun et al. 2023): the decay γ of each head is fixed, positions turn queries and keys.

        q_t = R_t W_q x_t,   k_t = R_t W_k x_t / √D,   v_t = W_v x_t
        S_t = γ S_{t−1} + k_t v_tᵀ,   y_t = S_tᵀ q_t,   γ_n = 1 − 2^(−5−n)
        out_t = W_o (swish(W_g x_t) ∘ norm(y_t))

    R_t rotates pairs of features by angles t·θ, so that q_t · k_s depends on the distance t − s.
    States: how many steps were read ``(B,)``, and S ``(B, heads, D, D)``.

    >>> an.nn.linear.RetNet(16, heads=2)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 4):
        super().__init__(width, heads)
        if (width // heads) % 2:
            raise ValueError(
                f"RetNet: heads must have an even width, not {width // heads}; choose other heads."
            )
        self.project = nn.Linear(width, 4 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def initial_state(self, batch: int, like: Tensor) -> States:
        size, kind = self.width // self.heads, torch.promote_types(like.dtype, torch.float32)
        read = torch.zeros(batch, dtype=torch.long, device=like.device)
        return read, like.new_zeros(batch, self.heads, size, size, dtype=kind)

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        read, matrix = state
        batch, time, _ = x.shape
        q, k, v, gate = self.project(x).chunk(4, -1)
        places = read[:, None] + torch.arange(time, device=x.device)  # rows may have read unequally much
        angles = places[..., None, None] * rotary_rates(self.width // self.heads).to(x.device)
        cos, sin = angles.cos().to(matrix.dtype), angles.sin().to(matrix.dtype)  # (B, T, 1, D/2)
        q, k = (rotated(self.split(part), cos, sin) for part in (q, k))
        rates = 1 - 2.0 ** (-5 - torch.arange(self.heads, device=x.device, dtype=matrix.dtype))
        log_w = rates.log().expand(batch, time, self.heads)
        scale = (self.width // self.heads) ** -0.5
        y, matrix = self.scan(q, k * scale, self.split(v), log_w, lengths, matrix)
        out = self.output(F.silu(gate) * rms(y).flatten(-2))
        return out, (read + (time if lengths is None else lengths.to(read)), matrix)
