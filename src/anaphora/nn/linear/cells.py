"""A recurrent cell as a mixer, so that it can stand in a residual block."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.nn.cell import Cell
from anaphora.nn.linear.layer import LinearLayer, ShortConvolution, States
from anaphora.nn.recurrent import Recurrent


class CellLayer(LinearLayer):
    """Any cell behind a short convolution: the block of minGRU and minLSTM (Feng et al. 2024, appendix C).

        u_t = swish(convolution of x over four steps),   h_t, … = cell(u_t, h_{t−1}, …),   out_t = W_o h_t

    The cell reads ``width`` values; its states may be wider. States: the last three steps, then those of the cell.

    >>> y, state = CellLayer(an.nn.MinGRU(16, 32))(torch.randn(2, 10, 16))
    >>> y.shape
    torch.Size([2, 10, 16])
    """

    def __init__(self, cell: Cell):
        super().__init__(cell.inputs)
        self.convolution = ShortConvolution(self.width)
        self.recurrent = Recurrent(cell)
        self.output = nn.Linear(cell.hidden, self.width, bias=False)

    def reset_parameters(self) -> None:
        """A cell of its own: its parts alone do not know what they begin as (the bias of a forget gate)."""
        cell = self.recurrent.cells[0]
        assert isinstance(cell, Cell)
        self.recurrent = Recurrent(cell.another(self.width))

    def initial_state(self, batch: int, like: Tensor) -> States:
        kind = torch.promote_types(like.dtype, torch.float32)
        empty = (like.new_zeros(batch, width, dtype=kind) for width in self.recurrent.widths)
        return self.convolution.initial_state(batch, like), *empty

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        u, past = self.convolution(x, state[0], lengths)
        y, last = self.recurrent(u, lengths, tuple(s[None].to(u.dtype) for s in state[1:]))
        return self.output(y), (past, *(s[0].to(state[1].dtype) for s in last))
