"""Long short-term memory over two dimensions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside
from anaphora.nn.exporting import loop, scanning
from anaphora.ops import grid
from anaphora.ops.grid import Directions, grid_states

_CORNERS: dict[int, Directions] = {
    1: ((False, False),),
    2: ((False, False), (True, True)),
    4: ((False, False), (False, True), (True, False), (True, True)),
}


class GridLSTM(nn.Module):
    """A two-dimensional LSTM (Graves & Schmidhuber 2009): the state of a place follows from the place itself and from the
    states above and to the left of it, with a forget gate for each.

        i, f_↑, f_←, o = σ(W x_ij + U_↑ h_{i−1,j} + U_← h_{i,j−1} + b)       each with its own W, U, b
        c̃              = tanh(W x_ij + U_↑ h_{i−1,j} + U_← h_{i,j−1} + b)
        c_ij            = f_↑ ∘ c_{i−1,j} + f_← ∘ c_{i,j−1} + i ∘ c̃
        h_ij            = o ∘ tanh(c_ij)

    One direction begins in the upper left corner; two begin there and in the lower right one; four begin in every
    corner, so that each place knows the whole picture. Each direction has weights of its own. There are as many ways to
    a place as paths, and a cell is the sum over all of them: forget gates begin at σ(0) = ½ each, where that sum
    neither grows nor shrinks, not near one as in one dimension.

    Places of an anti-diagonal are computed together (`anaphora.ops.grid`). Notes ``states``
    ``(batch, rows·columns, directions·hidden)``.

    Args:
        inputs: the width of each place of x.
        hidden: the width of a state.
        directions: 1, 2 or 4; anything else is a `ValueError`.

    >>> states, ends = an.nn.GridLSTM(3, 4, directions=2)(torch.zeros(2, 5, 6, 3))
    >>> states.shape, ends.shape
    (torch.Size([2, 5, 6, 8]), torch.Size([2, 2, 4]))
    """

    def __init__(self, inputs: int, hidden: int, *, directions: int = 4):
        super().__init__()
        if directions not in _CORNERS:
            raise ValueError(f"GridLSTM reads in 1, 2 or 4 directions, not {directions}.")
        self.inputs, self.hidden = inputs, hidden
        self.directions = _CORNERS[directions]
        self.output_size = directions * hidden
        self.weight = nn.Parameter(torch.empty(directions * 5 * hidden, inputs))
        self.recurrent = nn.Parameter(torch.empty(directions, 2, 5 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(directions * 5 * hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for gate in self.weight.detach().view(-1, self.hidden, self.inputs):
            nn.init.xavier_uniform_(gate)
        for gate in self.recurrent.detach().view(-1, self.hidden, self.hidden):
            nn.init.orthogonal_(gate)
            gate.mul_(0.5**0.5)  # two of them are added
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x ``(batch, rows, columns, inputs)`` -> states ``(batch, rows, columns, directions·hidden)``, and the state each
        direction ends with ``(directions, batch, hidden)``."""
        if x.dim() != 4 or x.shape[3] != self.inputs or 0 in x.shape[1:3]:
            raise ValueError(
                f"GridLSTM: x must be (batch, rows, columns, {self.inputs}), got {tuple(x.shape)}."
            )
        if scanning():
            states = self._looped(x)
        else:
            states = grid_states(x, self.weight, self.bias, self.recurrent, self.directions)
        ends = torch.stack(
            [
                states[:, 0 if bottom else -1, 0 if right else -1, k]
                for k, (bottom, right) in enumerate(self.directions)
            ]
        )
        states = states.flatten(3)
        inside.note(self, "states", states.flatten(1, 2))
        return states, ends

    def _looped(self, x: Tensor) -> Tensor:
        """The states as an exported graph computes them: one loop over the anti-diagonals."""
        pre, there = grid.skewed(F.linear(x, self.weight, self.bias), self.directions)
        weights = grid.by_direction(self.recurrent)
        nothing = torch.zeros_like(pre[0, ..., : self.hidden])
        _, states = loop(
            lambda before, here: grid.advance(before, here, weights), (nothing, nothing), (pre, there)
        )
        return grid.as_picture(states, x.shape[2], self.directions)

    def extra_repr(self) -> str:
        return f"{self.inputs}, {self.hidden}, directions={len(self.directions)}"
