"""The waves in torch operations, for any device: all directions and all places of an anti-diagonal at once.

States and cells are kept by diagonal d = i + j and row i, one beyond the edge on either side, as ``(directions, d + 1,
i + 1, batch, …)``: the places above those of diagonal d and to the left of them are then slices of diagonal d − 1, and
beyond the edges there are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.native.fused import Backward, fused
from anaphora.ops.grid import native
from anaphora.ops.grid.skewed import Directions, states_by_diagonals

_of_sigmoid, _of_tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


def grid_states(x: Tensor, weight: Tensor, bias: Tensor, recurrent: Tensor, directions: Directions) -> Tensor:
    """States ``(batch, rows, columns, directions, hidden)`` of x ``(batch, rows, columns, inputs)``.

    weight ``(directions·5·hidden, inputs)`` and bias ``(directions·5·hidden,)`` make p = W x + b of the package;
    recurrent is U.
    """
    if native.library.ready(x, weight, bias, recurrent) and not torch.is_autocast_enabled("cpu"):
        return native.waves(x, weight, bias, recurrent, directions)
    pre = F.linear(x, weight, bias).view(*x.shape[:3], len(directions), -1)
    # A cell is a sum over many places, too many for half precision.
    wide = torch.promote_types(pre.dtype, torch.float32)
    there_is = torch.amp.is_autocast_available(x.device.type)  # not on meta
    with torch.autocast(x.device.type, enabled=False) if there_is else nullcontext():
        return by_torch(pre.to(wide), recurrent.to(wide), directions)


def by_torch(pre: Tensor, recurrent: Tensor, directions: Directions) -> Tensor:
    """States from p and U, one anti-diagonal after the other."""
    found: Tensor = _waves(pre, recurrent, directions=directions)
    return found


def _forward(
    keep: bool, pre: Tensor, recurrent: Tensor, *, directions: Directions
) -> tuple[Tensor, Sequence[Any]]:
    batch, rows, columns, count, wide = pre.shape
    hidden, order = wide // 5, _order(rows, columns, directions, pre.device)
    gates = order.along_waves(pre)  # p, and what becomes of it
    weights = torch.cat(recurrent.unbind(1), -1).transpose(1, 2)  # (directions, 2·hidden, 5·hidden)
    h, c = (pre.new_zeros(count, rows + columns, rows + 1, batch, hidden) for _ in range(2))
    around = pre.new_empty(*gates.shape[:3], 2 * hidden)  # the states above and to the left
    squashed = pre.new_empty(*gates.shape[:3], hidden)  # tanh(c)
    for d, at, first, last in order.diagonals():
        up, left = slice(first, last + 1), slice(first + 1, last + 2)
        torch.cat((h[:, d, up], h[:, d, left]), -1, out=around[:, at])
        a = gates[:, at]
        a += torch.bmm(around[:, at].flatten(1, 2), weights).view(a.shape)
        i, f_up, f_left, o = a[..., : 4 * hidden].sigmoid_().chunk(4, -1)
        new = a[..., 4 * hidden :].tanh_()
        cells = torch.mul(f_up, c[:, d, up]).addcmul_(f_left, c[:, d, left]).addcmul_(i, new)
        c[:, d + 1, left] = cells
        torch.mul(o, torch.tanh(cells, out=squashed[:, at]), out=h[:, d + 1, left])
    states = order.as_picture(h.flatten(1, 2)[:, order.slots])
    return states, (weights, gates, around, squashed, c, order)


def _backward(back: Backward, *, directions: Directions) -> tuple[Tensor, Tensor]:
    kept, _, grads, _ = back
    weights, gates, around, squashed, c, order = kept
    hidden = squashed.shape[-1]
    of_h, of_c = torch.zeros_like(c), torch.zeros_like(c)
    of_h.flatten(1, 2)[:, order.slots] = order.along_waves(grads[0])
    of_gates = torch.empty_like(gates)
    transposed = weights.transpose(1, 2)
    for d, at, first, last in reversed(order.diagonals()):
        up, left = slice(first, last + 1), slice(first + 1, last + 2)
        i, f_up, f_left, o = gates[:, at, :, : 4 * hidden].chunk(4, -1)
        new, t, h = gates[:, at, :, 4 * hidden :], squashed[:, at], of_h[:, d + 1, left]
        cells = of_c[:, d + 1, left] + _of_tanh(h * o, t)
        g = of_gates[:, at]
        for part, (one, other) in enumerate(
            ((cells, new), (cells, c[:, d, up]), (cells, c[:, d, left]), (h, t))
        ):
            torch.mul(one, other, out=g[..., part * hidden : (part + 1) * hidden])
        g[..., : 4 * hidden] = _of_sigmoid(g[..., : 4 * hidden], gates[:, at, :, : 4 * hidden])
        g[..., 4 * hidden :] = _of_tanh(cells * i, new)
        of_c[:, d, up].addcmul_(cells, f_up)
        of_c[:, d, left].addcmul_(cells, f_left)
        both = torch.bmm(g.flatten(1, 2), transposed).view(*g.shape[:3], -1)
        of_h[:, d, up] += both[..., :hidden]
        of_h[:, d, left] += both[..., hidden:]
    of_weights = torch.bmm(of_gates.flatten(1, 2).transpose(1, 2), around.flatten(1, 2))
    of_recurrent = torch.stack(torch.split(of_weights, hidden, -1), 1)
    return order.as_picture(of_gates), of_recurrent


_waves = fused(_forward, _backward, states_by_diagonals)


@dataclass(frozen=True)
class _Order:
    """How places ``i·columns + j`` follow along the waves."""

    rows: int
    columns: int
    along: Tensor
    """The place that comes when, ``(directions, places)``."""
    back: Tensor
    """The inverse."""
    slots: Tensor
    """Where that is by diagonal and row, one beyond the edge on either side, ``(places,)``."""

    def diagonals(self) -> list[tuple[int, slice, int, int]]:
        """Number, places along the waves, first and last row of each diagonal."""
        found, start = [], 0
        for d in range(self.rows + self.columns - 1):
            first, last = _ends(d, self.rows, self.columns)
            found.append((d, slice(start, start + last - first + 1), first, last))
            start += last - first + 1
        return found

    def along_waves(self, x: Tensor) -> Tensor:
        """``(batch, rows, columns, directions, …)`` -> ``(directions, places along the waves, batch, …)``."""
        which = torch.arange(len(self.along), device=x.device)[:, None]
        return x.flatten(1, 2).permute(2, 1, 0, 3)[which, self.along]

    def as_picture(self, x: Tensor) -> Tensor:
        """The inverse of `along_waves`."""
        which = torch.arange(len(self.back), device=x.device)[:, None]
        places = x[which, self.back].permute(2, 1, 0, 3)
        return places.reshape(x.shape[2], self.rows, self.columns, x.shape[0], x.shape[3])


def _ends(d: int, rows: int, columns: int) -> tuple[int, int]:
    """The first and the last row of a diagonal."""
    return max(0, d - columns + 1), min(d, rows - 1)


@lru_cache(maxsize=64)
def _order(rows: int, columns: int, directions: Directions, device: torch.device) -> _Order:
    along = [
        (i, d - i)
        for d in range(rows + columns - 1)
        for i in range(_ends(d, rows, columns)[0], _ends(d, rows, columns)[1] + 1)
    ]
    i, j = torch.tensor(along).unbind(1)
    order = torch.stack(
        [
            (rows - 1 - i if bottom else i) * columns + (columns - 1 - j if right else j)
            for bottom, right in directions
        ]
    )
    tables = (order, order.argsort(1), (i + j + 1) * (rows + 1) + i + 1)
    return _Order(rows, columns, *(table.to(device) for table in tables))
