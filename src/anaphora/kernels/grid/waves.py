"""The waves in torch operations, for any device: all directions and all places of an anti-diagonal at once."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.kernels.grid import native
from anaphora.kernels.grid.native import Directions


def grid_states(x: Tensor, weight: Tensor, bias: Tensor, recurrent: Tensor, directions: Directions) -> Tensor:
    """States ``(batch, rows, columns, directions, hidden)`` of x ``(batch, rows, columns, inputs)``.

    weight ``(directions·5·hidden, inputs)`` and bias ``(directions·5·hidden,)`` make p = W x + b of the package;
    recurrent is U.
    """
    if native.ready(x, weight, bias, recurrent) and not torch.is_autocast_enabled("cpu"):
        return native.waves(x, weight, bias, recurrent, directions)
    pre = F.linear(x, weight, bias).view(*x.shape[:3], len(directions), -1)
    return by_torch(pre, recurrent, directions)


def by_torch(pre: Tensor, recurrent: Tensor, directions: Directions) -> Tensor:
    """States from p and U, one anti-diagonal after the other; torch finds the way back."""
    batch, rows, columns, count, wide = pre.shape
    hidden = wide // 5
    order, back = (table.to(pre.device) for table in _orders(rows, columns, directions))
    # (directions, places along the waves, batch, 5·hidden)
    waiting = torch.stack([pre[..., k, :].flatten(1, 2)[:, order[k]] for k in range(count)]).transpose(1, 2)
    weights = torch.cat(recurrent.unbind(1), -1).transpose(1, 2)  # (directions, 2·hidden, 5·hidden)
    h = c = pre.new_zeros(count, 0, batch, hidden)
    first, last, start, found = 0, -1, 0, []
    for d in range(rows + columns - 1):
        before = first, last
        first, last = max(0, d - columns + 1), min(d, rows - 1)
        h_up, h_left = _neighbours(h, before, (first, last))
        c_up, c_left = _neighbours(c, before, (first, last))
        both = torch.cat((h_up, h_left), -1).flatten(1, 2)
        a = torch.bmm(both, weights).view(count, -1, batch, wide)
        a = waiting[:, start : start + last - first + 1] + a
        if a.dtype != torch.float64:
            a = a.float()  # cells are sums over many places, too many for half precision
        i, f_up, f_left, new, o = a.chunk(5, -1)
        c = torch.sigmoid(f_up) * c_up + torch.sigmoid(f_left) * c_left + torch.sigmoid(i) * torch.tanh(new)
        h = torch.sigmoid(o) * torch.tanh(c)
        found.append(h)
        start += last - first + 1
    along = torch.cat(found, 1).transpose(1, 2)  # (directions, batch, places along the waves, hidden)
    states = torch.stack([along[k][:, back[k]] for k in range(count)], 2)
    return states.view(batch, rows, columns, count, hidden)


def _neighbours(x: Tensor, before: tuple[int, int], now: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """What stands above and to the left of rows ``now`` of a diagonal, given rows ``before`` of the last one; zeros at
    the edges. x ``(directions, places, batch, hidden)``."""
    (a, b), (first, last) = before, now
    padded = F.pad(x, (0, 0, 0, 0, a - first + 1, last - b))  # rows first − 1 … last
    return padded[:, :-1], padded[:, 1:]


@cache
def _orders(rows: int, columns: int, directions: Directions) -> tuple[Tensor, Tensor]:
    """Which place ``i·columns + j`` comes when in the wave of each direction, ``(directions, places)``, and the inverse."""
    along = [
        (i, d - i)
        for d in range(rows + columns - 1)
        for i in range(max(0, d - columns + 1), min(d, rows - 1) + 1)
    ]
    i, j = torch.tensor(along).unbind(1)
    order = torch.stack(
        [
            (rows - 1 - i if bottom else i) * columns + (columns - 1 - j if right else j)
            for bottom, right in directions
        ]
    )
    return order, order.argsort(1)
