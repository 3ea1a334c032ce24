"""The waves in C, where there is a compiler, and their gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.engine.backends.c import compiled
from anaphora.engine.backends.c.source import prelude
from anaphora.native.c import CLibrary, beside
from anaphora.native.fused import Backward, fused
from anaphora.ops.grid.skewed import Directions, states_by_diagonals

_GROUP = 8  # pictures that go through a wave together, as in the prelude


library = CLibrary(
    "grid",
    lambda double: prelude(double) + beside(__package__, "waves.c"),
    no_memory="a two-dimensional LSTM ran out of memory; use smaller batches or pictures",
    void=("pack",),
    counts=("packed_size",),
)


def waves(x: Tensor, weight: Tensor, bias: Tensor, recurrent: Tensor, directions: Directions) -> Tensor:
    """States ``(batch, rows, columns, directions, hidden)``; arguments as for `waves.grid_states`."""
    count, hidden = len(directions), recurrent.shape[-1]
    shapes = ((count * 5 * hidden, x.shape[-1]), (count * 5 * hidden,), (count, 2, 5 * hidden, hidden))
    if x.dim() != 4 or (weight.shape, bias.shape, recurrent.shape) != shapes:
        got = ", ".join(str(tuple(t.shape)) for t in (x, weight, bias, recurrent))
        raise ValueError(f"a two-dimensional LSTM in {count} directions cannot have the shapes {got}.")
    found: Tensor = _waves(x, weight, bias, recurrent, directions=directions)
    return found


def _forward(
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


def _backward(back: Backward, *, directions: Directions) -> tuple[Tensor | None, ...]:
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


_waves = fused(_forward, _backward, _by_torch)


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
