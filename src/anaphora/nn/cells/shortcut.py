"""Skip connections through time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.nn.cell import Cell
from anaphora.nn.cells.elman import Elman


class Shortcut(Cell):
    """Any cell with connections that jump back over time, each with weights of its own.

        s_t = cell([x_t; h_{t−k}], s_{t−1})        k = ``by``

    The gradient reaches h_{t−k} in one step instead of k, so it vanishes more slowly. ``cell`` is the class
    of the cell inside and further options are its own: ``Shortcut(64, 128, cell=LSTM, by=8, peephole=True)``.
    The outputs of the last k steps are states of this cell, after those of the cell inside.

    A `ValueError` where ``by`` is below 2.

    >>> cell = an.nn.Shortcut(3, 4, cell=an.nn.GRU, by=3)
    >>> cell.state
    ('h', 'h-2', 'h-3')
    >>> an.nn.Recurrent(cell)(torch.zeros(2, 5, 3))[0].shape
    torch.Size([2, 5, 4])
    """

    def setup(
        self, inputs: int, hidden: int, *, cell: type[Cell] = Elman, by: int = 4, **options: Any
    ) -> None:
        if by < 2:
            raise ValueError(
                f"Shortcut: by must be at least 2 (the cell itself sees one step back), got {by}."
            )
        self.by = by
        self.inner = cell(inputs + hidden, hidden, **options)
        self.state = (*self.inner.state, *(f"{self.inner.state[0]}-{k}" for k in range(2, by + 1)))

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        count = len(self.inner.state)
        inner, back = states[:count], states[count:]
        new = self.inner.advance(torch.cat((x, back[-1]), -1), inner)
        return (*new, inner[0], *back[:-1])
