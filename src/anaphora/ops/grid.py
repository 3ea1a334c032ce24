"""The recurrence of a two-dimensional LSTM: every place needs its neighbours above and to the left, so places on one
anti-diagonal are computed together, a wave from one corner to the opposite one.

    i, f_↑, f_←, o = σ(a),   c̃ = tanh(a)        a_ij = p_ij + U_↑ h_{i−1,j} + U_← h_{i,j−1}
    c_ij = f_↑ ∘ c_{i−1,j} + f_← ∘ c_{i,j−1} + i ∘ c̃
    h_ij = o ∘ tanh(c_ij)

p ``(batch, rows, columns, directions, 5·hidden)`` is what the input contributes, W x + b, gates in the order i, f_↑, f_←,
o, c̃; U ``(directions, 2, 5·hidden, hidden)`` has U_↑ before U_←. Outside the picture h and c are zero. A direction is a
pair of booleans, whether it reads rows from the bottom up and columns from the right to the left.
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

from anaphora.engine.backends.c import compiled
from anaphora.engine.backends.c.source import prelude
from anaphora.native.c import CLibrary, beside
from anaphora.native.fused import Backward, fused

# ----------------------------------------------------------------------
# The waves as a loop over the anti-diagonals in torch operations: for programs that are exported, where pictures have one size, and
# for all who follow the operations.
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


# ----------------------------------------------------------------------
# The waves in torch operations, for any device: all directions and all places of an anti-diagonal at once.
#
# States and cells are kept by diagonal d = i + j and row i, one beyond the edge on either side, as ``(directions, d + 1,
# i + 1, batch, …)``: the places above those of diagonal d and to the left of them are then slices of diagonal d − 1, and
# beyond the edges there are zeros.
_of_sigmoid, _of_tanh = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


def grid_states(x: Tensor, weight: Tensor, bias: Tensor, recurrent: Tensor, directions: Directions) -> Tensor:
    """States ``(batch, rows, columns, directions, hidden)`` of x ``(batch, rows, columns, inputs)``.

    weight ``(directions·5·hidden, inputs)`` and bias ``(directions·5·hidden,)`` make p = W x + b of the package;
    recurrent is U.
    """
    if library.ready(x, weight, bias, recurrent) and not torch.is_autocast_enabled("cpu"):
        return native_waves(x, weight, bias, recurrent, directions)
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


# ----------------------------------------------------------------------
# The waves in C, where there is a compiler, and their gradient.
_GROUP = 8  # pictures that go through a wave together, as in the prelude


library = CLibrary(
    "grid",
    lambda double: prelude(double) + beside(__package__, "csrc/grid.c"),
    no_memory="a two-dimensional LSTM ran out of memory; use smaller batches or pictures",
    void=("pack",),
    counts=("packed_size",),
)


def native_waves(
    x: Tensor, weight: Tensor, bias: Tensor, recurrent: Tensor, directions: Directions
) -> Tensor:
    """States ``(batch, rows, columns, directions, hidden)``; arguments as for `waves.grid_states`."""
    count, hidden = len(directions), recurrent.shape[-1]
    shapes = ((count * 5 * hidden, x.shape[-1]), (count * 5 * hidden,), (count, 2, 5 * hidden, hidden))
    if x.dim() != 4 or (weight.shape, bias.shape, recurrent.shape) != shapes:
        got = ", ".join(str(tuple(t.shape)) for t in (x, weight, bias, recurrent))
        raise ValueError(f"a two-dimensional LSTM in {count} directions cannot have the shapes {got}.")
    found: Tensor = _native_waves(x, weight, bias, recurrent, directions=directions)
    return found


def _native_forward(
    keep: bool, x: Tensor, weight: Tensor, bias: Tensor, recurrent: Tensor, *, directions: Directions
) -> tuple[Tensor, Sequence[Any]]:
    x, recurrent = x.contiguous(), recurrent.contiguous()
    hidden, places = recurrent.shape[-1], x.shape[:3].numel()
    gates = compiled.take(x, places * len(weight)).view(places, len(weight))
    cells = compiled.take(x, gates.numel() // 5)
    states = x.new_empty(*x.shape[:3], len(directions), hidden)
    torch.addmm(bias, x.view(places, -1), weight.T, out=gates)
    packed = _packed(recurrent, (5 * hidden, hidden, hidden, 1))
    library.call(x.dtype, "grid_forward", _sizes(states, directions), (gates, packed, cells, states))
    lease = compiled.Lease((gates, cells))  # given back at once where nothing is kept
    return states, (states, lease) if keep else ()


def _native_backward(back: Backward, *, directions: Directions) -> tuple[Tensor | None, ...]:
    kept, tensors, grads, needs = back
    states, lease = kept
    x, weight, _, recurrent = tensors
    x, recurrent = x.contiguous(), recurrent.contiguous()
    gates, cells = lease.buffers
    hidden = recurrent.shape[-1]
    of_gates = compiled.take(x, gates.numel()).view_as(gates)
    of_states = compiled.take(x, cells.numel()).view_as(states).copy_(grads[0])
    of_cells = compiled.take(x, cells.numel()).zero_()
    packed = _packed(recurrent, (hidden, 5 * hidden, 1, hidden))
    given = (gates, cells, packed, of_states, of_cells, of_gates)
    library.call(x.dtype, "grid_backward", _sizes(states, directions), given)
    found = (
        (of_gates @ weight).view_as(x) if needs[0] else None,
        of_gates.T @ x.view(len(gates), -1) if needs[1] else None,
        of_gates.sum(0) if needs[2] else None,
        _outer_products(of_gates, states, recurrent, directions) if needs[3] else None,
    )
    compiled.give_back((of_gates, of_states, of_cells))
    return found


def _by_torch(
    x: Tensor, weight: Tensor, bias: Tensor, recurrent: Tensor, *, directions: Directions
) -> Tensor:
    return states_by_diagonals(F.linear(x, weight, bias), recurrent, directions=directions)


_native_waves = fused(_native_forward, _native_backward, _by_torch)


def _outer_products(of_gates: Tensor, states: Tensor, recurrent: Tensor, directions: Directions) -> Tensor:
    """∂L/∂U: the sum over all places of ∂L/∂a_ij h_{i−1,j}ᵀ, and of ∂L/∂a_ij h_{i,j−1}ᵀ, ``(directions, 2, 5H, H)``."""
    batch, rows, columns, count, hidden = states.shape
    found = torch.empty_like(recurrent)
    places = torch.arange(batch * rows * columns).view(batch, rows, columns)
    threads = max(1, min(torch.get_num_threads(), 5 * hidden // 128))
    for k, (bottom, right) in enumerate(directions):
        with_up = places[:, :-1] if bottom else places[:, 1:]
        with_left = places[:, :, :-1] if right else places[:, :, 1:]
        away = (columns if bottom else -columns, 1 if right else -1)
        for side, (chosen, distance) in enumerate(zip((with_up, with_left), away, strict=True)):
            chosen = chosen.flatten().contiguous()  # flattening alone may leave a stride
            sizes = (5 * hidden, hidden, len(chosen), threads, count * 5 * hidden, count * hidden)
            # Row r of the gradient meets row r + distance of the states: both are counted by r.
            neighbours = states.data_ptr() + (distance * count + k) * hidden * states.element_size()
            gradients = of_gates.data_ptr() + k * 5 * hidden * of_gates.element_size()
            library.call(found.dtype, "outer", sizes, (gradients, neighbours, found[k, side], chosen))
    return found


def _packed(recurrent: Tensor, how: tuple[int, int, int, int]) -> Tensor:
    """Every matrix of U in the order products read it; ``how``: columns, inner size and the strides of both."""
    matrices = recurrent.flatten(0, 1)
    packed = recurrent.new_empty(len(matrices), library.count(recurrent.dtype, "packed_size", *how[:2]))
    for matrix, place in zip(matrices, packed, strict=True):
        library.call(recurrent.dtype, "pack", how, (matrix, place))
    return packed


def _sizes(states: Tensor, directions: Directions) -> tuple[int, ...]:
    jobs = len(directions) * -(-states.shape[0] // _GROUP)
    flips = (bottom + 2 * right for bottom, right in directions)
    return (*states.shape, max(1, min(torch.get_num_threads(), jobs)), *flips)
