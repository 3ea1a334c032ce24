"""Griffin's recurrent block: the real-gated linear recurrent unit behind a convolution, beside a gate."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.cells.scanned import RGLRU
from anaphora.nn.linear.layer import LinearLayer, ShortConvolution, States
from anaphora.nn.recurrent import Recurrent


class Griffin(LinearLayer):
    """The recurrent block of Griffin and Hawk (De et al. 2024, figure 2c).

        u_t = convolution of W x over four steps,   h_t = RG-LRU(u_t, h_{t−1}) (`RGLRU` has its equations)
        out_t = W_o (gelu(W_g x_t) ∘ h_t)

    The recurrence is ``inner`` wide, 4/3 of the width if None, as published. Griffin puts two such blocks before each
    block of `LocalAttention`; Hawk has no attention. States: the last three steps ``(B, 3, inner)``, h ``(B, inner)``.

    >>> y, state = Griffin(48)(torch.randn(2, 10, 48))
    """

    def __init__(self, width: int, heads: int = 1, *, inner: int | None = None):
        super().__init__(width, heads)
        self.inner = -(-4 * width // 3 // 8) * 8 if inner is None else inner
        self.project = nn.Linear(width, 2 * self.inner, bias=False)
        self.convolution = ShortConvolution(self.inner, activated=False)
        self.recurrent = Recurrent(RGLRU(self.inner, self.inner))
        self.output = nn.Linear(self.inner, width, bias=False)

    def initial_state(self, batch: int, like: Tensor) -> States:
        kind = torch.promote_types(like.dtype, torch.float32)
        return self.convolution.initial_state(batch, like), like.new_zeros(batch, self.inner, dtype=kind)

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        u, gate = self.project(x).chunk(2, -1)
        u, past = self.convolution(u, state[0], lengths)
        y, (last,) = self.recurrent(u, lengths, (state[1][None].to(u.dtype),))
        return self.output(F.gelu(gate) * y), (past, last[0].to(state[1].dtype))
