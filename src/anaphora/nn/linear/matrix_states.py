"""Layers with matrix states: gated linear attention, RetNet, DeltaNet and RWKV-7."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.linear.layer import EPSILON, LinearLayer, ShortConvolution, States, last_steps, rms, unit
from anaphora.nn.positions import rotary_rates, rotated

# ---------------------------------------------------------------------- gated linear attention
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


# ----------------------------------------------------------------------
# Retention: linear attention that forgets at a fixed rate per head.
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


# ----------------------------------------------------------------------
# The delta rule: a write first takes out what the state held under the same key.
class DeltaNet(LinearLayer):
    """The delta rule over a matrix of associations (Schlag et al. 2021; Yang et al. 2024).

        q_t, k_t, v_t: W x_t, a convolution over four steps, swish; q and k of length 1;   β_t = σ(w_β x_t)
        S_t = (I − β_t k_t k_tᵀ) S_{t−1} + β_t k_t v_tᵀ,   y_t = S_tᵀ q_t
        out_t = W_o norm(y_t)

    With β = 1 the value stored under k is replaced by v. ``signed`` doubles β, so that eigenvalues reach −1: then the state
    can count modulo two (Grazzi et al. 2025). States: the last three steps ``(B, 3, ·)``, S ``(B, heads, D, D)``.

    >>> an.nn.linear.DeltaNet(16, heads=2)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 4, *, signed: bool = False):
        super().__init__(width, heads)
        self.signed = signed
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.convolution = ShortConvolution(3 * width)
        self.write = nn.Linear(width, heads)
        self.norm = nn.RMSNorm(width // heads, EPSILON)
        self.output = nn.Linear(width, width, bias=False)

    def initial_state(self, batch: int, like: Tensor) -> States:
        size, kind = self.width // self.heads, torch.promote_types(like.dtype, torch.float32)
        matrix = like.new_zeros(batch, self.heads, size, size, dtype=kind)
        return self.convolution.initial_state(batch, like), matrix

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        mixed, past = self.convolution(self.project(x), state[0], lengths)
        q, k, v = (self.split(part) for part in mixed.chunk(3, -1))
        q, k, beta = unit(q), unit(k), (1 + self.signed) * self.write(x).sigmoid()
        log_w = self.log_decay(x)
        kept = beta if log_w is None else beta * log_w.exp()
        nothing = beta.new_zeros(beta.shape) if log_w is None else log_w
        y, matrix = self.scan(q, beta[..., None] * k, v, nothing, lengths, state[1], k, -kept[..., None] * k)
        return self.finish(x, y), (past, matrix)

    def log_decay(self, x: Tensor) -> Tensor | None:
        """log α ``(B, T, heads)``; None where nothing is forgotten."""
        return None

    def finish(self, x: Tensor, y: Tensor) -> Tensor:
        """The output ``(B, T, width)`` of what was read, ``(B, T, heads, D)``."""
        out: Tensor = self.output(self.norm(y).flatten(-2))
        return out


class GatedDeltaNet(DeltaNet):
    """The delta rule with a forget gate per head (Yang et al. 2025).

    α_t = exp(−e^A softplus(w_α x_t + d)),   S_t = α_t (I − β_t k_t k_tᵀ) S_{t−1} + β_t k_t v_tᵀ
    out_t = W_o (swish(W_g x_t) ∘ norm(y_t)),   everything else as in `DeltaNet`

    >>> an.nn.linear.GatedDeltaNet(16, heads=2)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 4, *, signed: bool = False):
        super().__init__(width, heads, signed=signed)
        self.gate = nn.Linear(width, width, bias=False)
        self.forget = nn.Linear(width, heads, bias=False)
        self.rate = nn.Parameter(torch.empty(heads))
        self.offset = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.rate.uniform_(1, 16).log_()
            steps = torch.empty_like(self.offset).uniform_(-6.9, -2.3).exp()  # softplus(d) from 0.001 to 0.1
            self.offset.copy_(steps.expm1().log())

    def log_decay(self, x: Tensor) -> Tensor:
        return -self.rate.exp() * F.softplus(self.forget(x) + self.offset)

    def finish(self, x: Tensor, y: Tensor) -> Tensor:
        out: Tensor = self.output(F.silu(self.gate(x)) * self.norm(y).flatten(-2))
        return out


# ----------------------------------------------------------------------
# RWKV-7: a state that is decayed, corrected and written by channel.
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
