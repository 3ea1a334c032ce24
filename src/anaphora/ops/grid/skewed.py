"""The waves as a loop over the anti-diagonals in torch operations: for programs that are exported, where pictures have one size, and
for all who follow the operations."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

Directions = tuple[tuple[bool, bool], ...]


def states_by_diagonals(pre: Tensor, recurrent: Tensor, *, directions: Directions) -> Tensor:
    """Return the states ``(batch, rows, columns, directions, hidden)`` of p and U, differentiable any number of times."""
    columns = pre.shape[2]
    pre, there = skewed(pre, directions)
    weights = by_direction(recurrent)
    states: tuple[Tensor, ...] = (torch.zeros_like(pre[0, ..., : recurrent.shape[-1]]),) * 2
    found = []
    for of_diagonal in zip(pre.unbind(0), there.unbind(0), strict=True):
        states, h = advance(states, of_diagonal, weights)
        found.append(h)
    return as_picture(torch.stack(found), columns, directions)


def by_direction(recurrent: Tensor) -> Tensor:
    """Return U as `advance` reads it, ``(directions, 1, 2·hidden, 5·hidden)``."""
    return torch.cat(recurrent.unbind(1), -1).transpose(1, 2).unsqueeze(1)


def skewed(pre: Tensor, directions: Directions) -> tuple[Tensor, Tensor]:
    """Return p = W x + b by anti-diagonal d and row i, ``(diagonals, directions, batch, rows, 5·hidden)``, each direction from its own
    corner on; and which of these are places, ``(diagonals, rows)``."""
    rows, columns = pre.shape[1], pre.shape[2]
    pre = pre.reshape(*pre.shape[:3], len(directions), -1)
    oriented = [pre[:, :, :, k].flip(flips) for k, flips in enumerate(_flips(directions))]
    flat = torch.stack(oriented).flatten(2, 3)  # (directions, batch, places, 5·hidden)
    i = torch.arange(rows, device=pre.device)
    d = torch.arange(rows + columns - 1, device=pre.device)[:, None]
    j = d - i  # (diagonals, rows)
    there = (j >= 0) & (j < columns)
    chosen = flat[:, :, (i * columns + j.clamp(0, columns - 1)).flatten()]
    return chosen.reshape(*chosen.shape[:2], *j.shape, -1).permute(2, 0, 1, 3, 4), there


def advance(
    states: tuple[Tensor, ...], given: tuple[Tensor, ...], weights: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    """One diagonal: h and c of the one before ``(directions, batch, rows, hidden)``, given p of this one and which of its rows
    are places; weights ``(directions, 1, 2·hidden, 5·hidden)``."""
    (h, c), (pre, there) = states, given
    above = [F.pad(part[:, :, :-1], (0, 0, 1, 0)) for part in (h, c)]
    a = pre + torch.cat((above[0], h), -1) @ weights
    enter, f_up, f_left, o, new = a.chunk(5, -1)
    c = f_up.sigmoid() * above[1] + f_left.sigmoid() * c + enter.sigmoid() * new.tanh()
    c = torch.where(there[:, None], c, torch.zeros_like(c))
    h = o.sigmoid() * c.tanh()  # beyond the edges tanh(0)
    return (h, c), h.clone()


def as_picture(states: Tensor, columns: int, directions: Directions) -> Tensor:
    """States by diagonal and row ``(diagonals, directions, batch, rows, hidden)`` as ``(batch, rows, columns, directions,
    hidden)``."""
    rows = states.shape[3]
    i = torch.arange(rows, device=states.device)[:, None]
    j = torch.arange(columns, device=states.device)
    by_place = states.permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, ((i + j) * rows + i).flatten()]
    grid = by_place.reshape(*by_place.shape[:2], rows, columns, -1)
    return torch.stack([grid[k].flip(flips) for k, flips in enumerate(_flips(directions))], 3)


def _flips(directions: Directions) -> list[tuple[int, ...]]:
    """The axes of ``(batch, rows, columns, …)`` that each direction reads from their end."""
    return [(1,) * bottom + (2,) * right for bottom, right in directions]
