"""The delta rule: a write first takes out what the state held under the same key."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.linear.layer import EPSILON, LinearLayer, ShortConvolution, States, unit


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
