"""On a CPU: products in blocks of one size, so that a row has the same bits alone and among others.

A library chooses its kernel by the number of rows: one row is a dot product for each column, many are tiles, and each adds up in
its own order. Here every product has the same number of rows, filled up with zeros, at an aligned address: one kernel, one order.
Functions that take whole vectors of numbers by one code and what is left over by another are replaced as in `alone`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.native.following import following
from anaphora.native.snapshot import Snapshot
from anaphora.ops.invariant.alone import POINTWISE
from anaphora.ops.invariant.mode import replaced_on_cpu, under_all_names

ROWS = 32
"""Rows of a block."""
TILE = 16
"""What inputs and outputs are filled up to: whole vectors of every instruction set."""


@contextmanager
def rows_in_blocks(device: torch.device) -> Iterator[None]:
    """Within, products on a CPU without gradient are computed in blocks; nothing changes elsewhere."""
    with replaced_on_cpu(device, _table):
        yield


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if weight.dim() != 2 or input.numel() == 0 or input.dtype != weight.dtype:
        return F.linear(input, weight, bias)
    outputs, inputs = weight.shape
    filled = _filled(weight)
    if bias is not None and len(filled) > outputs:
        bias = F.pad(bias, (0, len(filled) - outputs))
    rows = input.reshape(-1, inputs)
    count = -(-len(rows) // ROWS)
    held = rows.new_zeros(count * ROWS, filled.shape[1])
    held[: len(rows), :inputs] = rows
    found = [F.linear(block, filled, bias) for block in torch.split(held, ROWS)]
    whole = found[0] if count == 1 else torch.cat(found)
    return whole[: len(rows), :outputs].reshape(*input.shape[:-1], outputs)


_kept: dict[int, tuple[weakref.ref[Tensor], Snapshot, Tensor]] = {}


def _filled(weight: Tensor) -> Tensor:
    """The weight ``(outputs, inputs)``, with zeros up to multiples of `TILE`: what is left of a tile has kernels of its own.

    That of a parameter is kept until it changes or is gone.
    """
    more = [-size % TILE for size in weight.shape]
    if not any(more):
        return weight
    if not isinstance(weight, nn.Parameter) or following(weight) is not None:
        return F.pad(weight, (0, more[1], 0, more[0]))
    key = id(weight)
    held = _kept.get(key)
    if held is not None and held[0]() is weight and held[1].unchanged():
        return held[2]
    content = Snapshot([weight])
    made = F.pad(weight.detach(), (0, more[1], 0, more[0]))
    _kept[key] = weakref.ref(weight, lambda _: _kept.pop(key, None)), content, made
    return made


def _matmul(input: Tensor, other: Tensor) -> Tensor:
    if other.dim() == 2 and input.dim() > 1:
        return _linear(input, other.t())
    return torch.matmul(input, other)


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * input + alpha * _linear(mat1, mat2.t())


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    """Every function that is replaced, under all of its names."""
    named: dict[str, Callable[..., Any]] = {
        "linear": _linear,
        "addmm": _addmm,
        **dict.fromkeys(("matmul", "mm", "__matmul__"), _matmul),
        **POINTWISE,
    }
    return under_all_names(named)
