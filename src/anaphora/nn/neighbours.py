"""What the columns near a column say of it, in the same way at every column."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FILTERS = 4


class Neighbours(nn.Module):
    """A filter over ordered columns, such as the keys of a piano, that follows from a state.

        o_k = Σ_f m_kf Σ_{|d| ≤ reach} w_fd y_{k+d},    w = A s + b,    k = 1 … columns

    w_fd weighs the value d columns away; it is the same for all columns, so that what is learned at one holds at the others:
    voices move by intervals, whatever the key. Each column mixes a few filters f by its own m_k, since high and low columns
    may behave differently. Outside the columns there are zeros. A and b begin at 0: at first the filters say nothing.

    Args:
        width: of the state s.
        columns: how many there are.
        reach: how far away a column may be, in columns.
        steps: how many o follow from one state, each by filters of its own.
        filters: how many there are for each step.

    >>> near = an.nn.Neighbours(width=6, columns=5, reach=2)
    >>> near(torch.zeros(3, 6), torch.zeros(3, 5)).shape                # (…, steps, columns)
    torch.Size([3, 1, 5])
    """

    places: Tensor

    def __init__(self, width: int, columns: int, reach: int, *, steps: int = 1, filters: int = FILTERS):
        super().__init__()
        if min(width, columns, reach, steps, filters) < 1:
            raise ValueError(
                "Neighbours: width, columns, reach, steps and filters must be at least 1, but are "
                f"{width}, {columns}, {reach}, {steps} and {filters}"
            )
        self.reach, self.steps, self.filters = reach, steps, filters
        self.weights = nn.Linear(width, steps * filters * (2 * reach + 1))
        self.mixture = nn.Parameter(torch.empty(columns, filters))
        ahead = torch.arange(columns).unsqueeze(1) + torch.arange(2 * reach + 1)
        self.register_buffer("places", ahead, persistent=False)  # (columns, 2 reach + 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weights.weight)
        nn.init.zeros_(self.weights.bias)
        nn.init.normal_(self.mixture, 1 / self.filters, 0.3)  # unequal, or the filters would stay alike

    def forward(self, states: Tensor, values: Tensor) -> Tensor:
        """states s ``(…, width)``, values y ``(…, columns)`` → o ``(…, steps, columns)``."""
        w = self.weights(states).unflatten(-1, (self.steps * self.filters, 2 * self.reach + 1))
        near = F.pad(values, (self.reach, self.reach))[..., self.places]  # (…, columns, 2 reach + 1)
        found = (near @ w.transpose(-1, -2)).unflatten(-1, (self.steps, self.filters))
        out: Tensor = (found * self.mixture.unsqueeze(-2)).sum(-1).transpose(-1, -2)
        return out
