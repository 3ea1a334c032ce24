"""Mamba and Mamba-2: selective state spaces."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside
from anaphora.nn.attention import masks
from anaphora.nn.exporting import loop, scanning
from anaphora.nn.linear.layer import LinearLayer, ShortConvolution, States, rms
from anaphora.ops import selective


# ---------------------------------------------------------------------- mamba: a selective scan over an expanded diagonal state
class Mamba(LinearLayer):
    """A selective state space (Gu & Dao 2023): each channel has ``state`` numbers that decay as the input says.

        u_t, z_t = W x_t (each twice as wide);   u through a convolution over four steps and swish
        Δ_t = softplus(W_Δ W_d u_t + b),   B_t, C_t = W_B u_t, W_C u_t
        h_t = exp(−Δ_t e^A) ∘ h_{t−1} + (Δ_t ∘ u_t) B_tᵀ,   y_t = h_t C_t + D ∘ u_t,   out_t = W_o (y_t ∘ swish(z_t))

    States: the last three steps ``(B, 3, 2·width)``, h ``(B, 2·width, state)``. The states of all steps are never stored:
    the backward pass computes each chunk of them again.

    >>> an.nn.linear.Mamba(16)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 1, *, state: int = 16):
        super().__init__(width, heads)
        self.size, self.inner, self.rank = state, 2 * width, max(1, width // 16)
        self.project = nn.Linear(width, 2 * self.inner, bias=False)
        self.convolution = ShortConvolution(self.inner)
        self.select = nn.Linear(self.inner, self.rank + 2 * state, bias=False)
        self.step_size = nn.Linear(self.rank, self.inner)
        self.rate = nn.Parameter(torch.empty(self.inner, state))
        self.skip = nn.Parameter(torch.ones(self.inner))
        self.output = nn.Linear(self.inner, width, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.rate.copy_(torch.arange(1, self.size + 1).float().log().expand(self.inner, -1))
            nn.init.uniform_(self.step_size.weight, -(self.rank**-0.5), self.rank**-0.5)
            steps = torch.empty_like(self.step_size.bias).uniform_(-6.9, -2.3).exp()  # Δ from 0.001 to 0.1
            self.step_size.bias.copy_(steps.expm1().log())
            self.skip.fill_(1.0)

    def initial_state(self, batch: int, like: Tensor) -> States:
        kind = torch.promote_types(like.dtype, torch.float32)
        return self.convolution.initial_state(batch, like), like.new_zeros(
            batch, self.inner, self.size, dtype=kind
        )

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        u, z = self.project(x).chunk(2, -1)
        u, past = self.convolution(u, state[0], lengths)
        low, b, c = self.select(u).split((self.rank, self.size, self.size), -1)
        delta = F.softplus(self.step_size(low))
        if lengths is not None:  # no time passes where a row has ended
            delta = torch.where(masks.padding(lengths, x.shape[1])[..., None], delta, 0.0)
        if inside.recording():
            for name, value in (("step_size", delta), ("keys", b), ("queries", c), ("values", u)):
                inside.note(self, name, value)
        y, h = selective_scan(u, delta, -self.rate.exp(), b, c, state[1])
        return self.output((y + self.skip * u) * F.silu(z)), (past, h)


def selective_scan(
    u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """h_t = exp(Δ_t A) ∘ h_{t−1} + (Δ_t ∘ u_t) B_tᵀ and y_t = h_t C_t.

    u, delta ``(B, T, H)``, rate A ``(H, N)``, b, c ``(B, T, N)``, state ``(B, H, N)``: y ``(B, T, H)`` and the last h.
    """
    if scanning():
        kind = state.dtype
        return _looped(tuple(x.to(kind).transpose(0, 1) for x in (u, delta, b, c)), rate.to(kind), state)
    return selective.selective_scan(u, delta, rate, b, c, state)


def _looped(given: States, rate: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step after the other, everything ``(T, B, …)``, as an exported graph has it."""

    def step(states: States, here: States) -> tuple[States, Tensor]:
        u, delta, b, c = here
        h = (delta[..., None] * rate).exp() * states[0] + (delta * u)[..., None] * b[:, None]
        return (h,), (h * c[:, None]).sum(-1)

    (last,), y = loop(step, (state,), given)
    return y.transpose(0, 1), last


# ---------------------------------------------------------------------- mamba-2: state space duality
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
