"""Mamba-2: state space duality."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.linear.layer import LinearLayer, ShortConvolution, States, rms


class Mamba2(LinearLayer):
    """Mamba-2 (Dao & Gu 2024): a selective state space with one decay per head.

        z_t, u_t, B_t, C_t, d_t = W x_t;   u, B, C through a convolution over four steps and swish
        Δ_t = softplus(d_t + b),   S_t = exp(−Δ_t e^A) S_{t−1} + B_t (Δ_t u_t)ᵀ,   y_t = S_tᵀ C_t + D u_t
        out_t = W_o (norm(y_t ∘ swish(z_t)) ∘ g)

    u is twice as wide as x. B and C ``(state,)`` are shared by all heads. States: the last three steps ``(B, 3, ·)``,
    S ``(B, heads, state, 2·width/heads)``.

    >>> an.nn.linear.Mamba2(16, heads=2)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 4, *, state: int = 64):
        super().__init__(width, heads)
        self.size, self.inner = state, 2 * width
        self.project = nn.Linear(width, 2 * self.inner + 2 * state + heads, bias=False)
        self.convolution = ShortConvolution(self.inner + 2 * state)
        self.rate, self.offset = nn.Parameter(torch.empty(heads)), nn.Parameter(torch.empty(heads))
        self.skip = nn.Parameter(torch.ones(heads))
        self.scale = nn.Parameter(torch.ones(self.inner))
        self.output = nn.Linear(self.inner, width, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.rate.uniform_(1, 16).log_()
            steps = torch.empty_like(self.offset).uniform_(-6.9, -2.3).exp()  # Δ from 0.001 to 0.1
            self.offset.copy_(steps.expm1().log())
            self.skip.fill_(1.0)
            self.scale.fill_(1.0)

    def initial_state(self, batch: int, like: Tensor) -> States:
        kind = torch.promote_types(like.dtype, torch.float32)
        matrix = like.new_zeros(batch, self.heads, self.size, self.inner // self.heads, dtype=kind)
        return self.convolution.initial_state(batch, like), matrix

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        shares = (self.inner, self.inner + 2 * self.size, self.heads)
        z, mixed, step = self.project(x).split(shares, -1)
        mixed, past = self.convolution(mixed, state[0], lengths)
        u, b, c = mixed.split((self.inner, self.size, self.size), -1)
        delta = F.softplus(step + self.offset)  # (B, T, heads)
        b, c = (part[:, :, None].expand(-1, -1, self.heads, -1) for part in (b, c))
        u = self.split(u)
        y, matrix = self.scan(c, b, delta[..., None] * u, -delta * self.rate.exp(), lengths, state[1])
        y = (y + self.skip[:, None] * u).flatten(-2)
        return self.output(rms(y * F.silu(z), self.scale)), (past, matrix)
