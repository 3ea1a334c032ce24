"""sLSTM behind a short convolution: the other block of xLSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.nn.cells.slstm import SLSTM
from anaphora.nn.linear.layer import EPSILON, LinearLayer, ShortConvolution, States
from anaphora.nn.recurrent import Recurrent


class SLSTMLayer(LinearLayer):
    """The recurrent half of xLSTM's sLSTM block (Beck et al. 2024, figure 9); a gated network of 4/3 the width follows it.

        u_t = swish(convolution of x over four steps),   h_t = sLSTM(x_t, u_t, h_{t−1}), whose gates i and f read u_t
        out_t = norm(h_t) by heads

    Memory mixing makes it a loop over time, not a scan. The recurrence is never computed in 16 bits.
    States: the last three steps ``(B, 3, width)``, and h, c, n, m of `SLSTM` ``(B, width)``.

    >>> an.nn.linear.SLSTMLayer(16, heads=2)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    in_full_precision = True  # of its weights: see `anaphora.nn.casting`

    def __init__(self, width: int, heads: int = 4):
        super().__init__(width, heads)
        self.convolution = ShortConvolution(width)
        self.recurrent = Recurrent(SLSTM(2 * width, width, heads=heads, halves=True))
        self.norm = nn.GroupNorm(heads, width, eps=EPSILON)

    def reset_parameters(self) -> None:
        self.recurrent = Recurrent(SLSTM(2 * self.width, self.width, heads=self.heads, halves=True))

    def initial_state(self, batch: int, like: Tensor) -> States:
        kind = torch.promote_types(like.dtype, torch.float32)
        empty = like.new_zeros(batch, self.width, dtype=kind)
        return self.convolution.initial_state(batch, like), *(empty for _ in self.recurrent.state)

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        u, past = self.convolution(x, state[0], lengths)
        both = torch.cat((x.to(state[1].dtype), u.to(state[1].dtype)), -1)
        with torch.autocast(x.device.type, enabled=False):
            y, last = self.recurrent(both, lengths, tuple(s[None] for s in state[1:]))
        normed = self.norm(y.flatten(0, 1)).view_as(y)
        return normed.to(x.dtype), (past, *(s[0] for s in last))
