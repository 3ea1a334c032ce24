"""RWKV-7: a state that is decayed, corrected and written by channel."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.linear.layer import LinearLayer, States, last_steps, unit

_MIXED = 6  # r, w, k, v, a, g each read their own mixture of this step and the one before


class RWKV7(LinearLayer):
    """Time mixing of RWKV-7 (Peng et al. 2025): the delta rule with decays and rates by channel.

        x^j_t = x_t + (x_{t−1} − x_t) ∘ μ_j  for j = r, w, k, v, a, g
        r, k, v = W_r x^r, W_k x^k, W_v x^v;   log w = −e^(−½) σ(w₀ + W₂ tanh(W₁ x^w));   a = σ(a₀ + A₂ A₁ x^a)
        κ = (k ∘ ξ) / ‖k ∘ ξ‖,   k̃ = k ∘ (1 + (a − 1) ∘ η)
        S_t = diag(w_t) S_{t−1} − (a_t ∘ κ_t)(κ_tᵀ S_{t−1}) + k̃_t v_tᵀ
        y_t = norm(S_tᵀ r_t) + (r_t · (ρ ∘ k̃_t)) v_t,   out_t = W_o (y_t ∘ G₂ σ(G₁ x^g))

    ``rank`` is that of W₂ W₁, A₂ A₁ and G₂ G₁. Without the mixing of values between layers. States: the last step ``(B, 1, width)``, S ``(B, heads, D, D)``.

    >>> an.nn.linear.RWKV7(16, heads=2)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 4, *, rank: int = 32):
        super().__init__(width, heads)
        self.mixing = nn.Parameter(torch.empty(_MIXED, width))
        self.receive, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.decay, self.rate, self.gate = (
            nn.ParameterDict({"down": torch.empty(rank, width), "up": torch.empty(width, rank)})
            for _ in range(3)
        )
        self.decay_offset, self.rate_offset = (
            nn.Parameter(torch.empty(width)),
            nn.Parameter(torch.empty(width)),
        )
        self.key_scale, self.key_rate = nn.Parameter(torch.empty(width)), nn.Parameter(torch.empty(width))
        self.bonus = nn.Parameter(torch.empty(heads, width // heads))
        self.norm = nn.GroupNorm(heads, width, eps=1e-5 * (width // heads))
        self.output = nn.Linear(width, width, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.mixing.fill_(0.5)
            for pair in (self.decay, self.rate, self.gate):
                nn.init.normal_(pair["down"], std=self.width**-0.5)
                nn.init.normal_(pair["up"], std=0.1 * pair["up"].shape[1] ** -0.5)
            self.decay_offset.copy_(torch.linspace(-6.0, 1.0, self.width))
            self.rate_offset.zero_()
            self.key_scale.fill_(0.85)
            self.key_rate.fill_(1.0)
            self.bonus.zero_()

    def initial_state(self, batch: int, like: Tensor) -> States:
        size, kind = self.width // self.heads, torch.promote_types(like.dtype, torch.float32)
        matrix = like.new_zeros(batch, self.heads, size, size, dtype=kind)
        return like.new_zeros(batch, 1, self.width), matrix

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        joined = torch.cat((state[0].to(x.dtype), x), 1)
        change = joined[:, :-1] - x
        xr, xw, xk, xv, xa, xg = (x + change * share for share in self.mixing)
        r, k, v = self.receive(xr), self.key(xk), self.value(xv)
        kind = state[1].dtype
        slow = self.decay_offset + low_rank(torch.tanh(xw @ self.decay["down"].T), self.decay)
        log_w = -math.exp(-0.5) * torch.sigmoid(slow.to(kind))
        rate = torch.sigmoid(self.rate_offset + low_rank(xa @ self.rate["down"].T, self.rate))
        removed = unit(self.split(k * self.key_scale))
        k = k * (1 + (rate - 1) * self.key_rate)
        r, k, v, rate, log_w = (self.split(part) for part in (r, k, v, rate, log_w))
        y, matrix = self.scan(r, k, v, log_w, lengths, state[1], removed, -rate * removed)
        y = self.norm(y.flatten(-2).flatten(0, 1)).view_as(x)
        bonus = (r * self.bonus * k).sum(-1, keepdim=True) * v
        gate = low_rank(torch.sigmoid(xg @ self.gate["down"].T), self.gate)
        return self.output((y + bonus.flatten(-2)) * gate), (last_steps(joined, 1, lengths), matrix)


def low_rank(x: Tensor, pair: nn.ParameterDict) -> Tensor:
    """The second of two thin matrices, ``(…, rank)`` -> ``(…, width)``."""
    return F.linear(x, pair["up"])
