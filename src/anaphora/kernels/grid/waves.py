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
    with torch.autocast(
        x.device.type, enabled=False
    ):  # cells are sums over many places, too many for half precision
        wide = torch.promote_types(pre.dtype, torch.float32)
        return by_torch(pre.to(wide), recurrent.to(wide), directions)


def by_torch(pre: Tensor, recurrent: Tensor, directions: Directions) -> Tensor:
    """States from p and U, one anti-diagonal after the other; torch finds the way back."""
    batch, rows, columns, count, wide = pre.shape
    hidden = wide // 5
    order, back = (table.to(pre.device) for table in _orders(rows, columns, directions))
    # (directions, places along the waves, batch, 5·hidden)
    waiting = torch.stack([pre[..., k, :].flatten(1, 2)[:, order[k]] for k in range(count)]).transpose(1, 2)
    weights = torch.cat(recurrent.unbind(1), -1).transpose(1, 2)  # (directions, 2·hidden, 5·hidden)
    hc = pre.new_zeros(count, 0, batch, 2 * hidden)  # state and cell of the places of the last diagonal
    first, last, found = 0, -1, []
    lengths = [min(d, rows - 1) - max(0, d - columns + 1) + 1 for d in range(rows + columns - 1)]
    for d, waves in enumerate(torch.split(waiting, lengths, 1)):
        before, (first, last) = (first, last), (max(0, d - columns + 1), min(d, rows - 1))
        around = F.pad(hc, (0, 0, 0, 0, before[0] - first + 1, last - before[1]))  # rows first − 1 … last
        up, left = around[:, :-1], around[:, 1:]
        both = torch.cat((up[..., :hidden], left[..., :hidden]), -1).flatten(1, 2)
        a = waves + torch.bmm(both, weights).view(waves.shape)
        i, f_up, f_left, o = torch.sigmoid(a[..., : 4 * hidden]).chunk(4, -1)
        c = torch.addcmul(f_up * up[..., hidden:], f_left, left[..., hidden:])
        c = torch.addcmul(c, i, torch.tanh(a[..., 4 * hidden :]))
        h = o * torch.tanh(c)
        hc = torch.cat((h, c), -1)
        found.append(h)
    along = torch.cat(found, 1).transpose(1, 2)  # (directions, batch, places along the waves, hidden)
    states = torch.stack([along[k][:, back[k]] for k in range(count)], 2)
    return states.view(batch, rows, columns, count, hidden)


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
