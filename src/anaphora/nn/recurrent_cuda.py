"""One layer on a GPU: the type it computes in, and PyTorch's own layer among the ways to run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.kernels.recurrence.engine import Engine
from anaphora.kernels.recurrence.reference import Params, States
from anaphora.nn.recurrent_native import native_form, run_native
from anaphora.nn.recurrent_step import LayerStep


def run_cuda(
    engine: Engine,
    step: LayerStep,
    params: Params,
    steps: States,
    rows: States,
    initial: States,
    lengths: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, States] | None:
    """Run a layer; ``params``: all of the cell's. None where the types do not fit together, for torch to complain.

    Under autocast the whole layer, its states included, is computed in autocast's type (sums and everything between
    the products in float32 all the same), as PyTorch's own layers are.
    """
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        with torch.autocast("cuda", enabled=False):
            params = {name: _cast(p, dtype) for name, p in params.items()}
            steps, rows, initial = (tuple(_cast(t, dtype) for t in g) for g in (steps, rows, initial))
            return run_cuda(engine, step, params, steps, rows, initial, lengths, reverse)
    x = steps[0]
    if any(p.is_floating_point() and p.dtype != x.dtype for p in params.values()):
        return None
    initial = tuple(s.to(x.dtype) for s in initial)

    def by_cudnn() -> tuple[Tensor, States]:
        return run_native(step.cell, x, initial, lengths, reverse, params)

    plain = not rows and not step.zoneout and native_form(step.cell) is not None
    return engine(params, steps, rows, initial, lengths, reverse, peer=by_cudnn if plain else None)


def entering(x: Tensor) -> Tensor:
    """x ``(B, T, ·)`` in the type its layers compute in: cast once for all directions, and time first in memory, which is
    how kernels read it."""
    if not torch.is_autocast_enabled("cuda") or not x.is_floating_point():
        return x
    dtype = torch.get_autocast_dtype("cuda")
    if x.dtype == dtype:
        return x
    return x.transpose(0, 1).to(dtype, memory_format=torch.contiguous_format).transpose(0, 1)


Run = Callable[[], tuple[Tensor, States]]
_beside: dict[tuple[int, int], Any] = {}


def side_by_side(first: Run, second: Run) -> list[tuple[Tensor, States]]:
    """Two runs at the same time: each leaves much of a GPU idle. Their backward passes run side by side, too."""
    now = torch.cuda.current_stream()
    place = (now.device_index, now.cuda_stream)
    if place not in _beside:
        _beside[place] = torch.cuda.Stream(now.device)  # type: ignore[no-untyped-call]
    beside = _beside[place]
    beside.wait_stream(now)
    one = first()
    with torch.cuda.stream(beside):
        other = second()
    now.wait_stream(beside)
    for made in (other[0], *other[1]):
        made.record_stream(now)
    return [one, other]


def views_of(cell: nn.Module) -> Params:
    """A cell's parameters as views made here: autograd then adds their gradients on this stream, wherever they are used."""
    return {name: p.view_as(p) for name, p in cell.named_parameters()}


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value
