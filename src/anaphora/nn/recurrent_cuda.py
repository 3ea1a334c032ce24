"""One layer on a GPU: the type it computes in, and PyTorch's own layer among the ways to run it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anaphora.kernels.recurrence.backends.persistent.run import run_both
from anaphora.kernels.recurrence.backends.reference import Params, States
from anaphora.kernels.recurrence.engine import Engine
from anaphora.nn.casting import cast_all
from anaphora.nn.cell import named_tensors
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


class Side(NamedTuple):
    """One direction of a layer."""

    engine: Engine
    step: LayerStep
    params: Params
    steps: States
    rows: States
    initial: States


def run_both_cuda(
    first: Side, second: Side, lengths: Tensor | None, inner: bool
) -> tuple[Tensor, tuple[States, States]] | None:
    """Both directions of a layer, which read the same x, in one launch: y ``(B, T, 2H)`` and their last states.

    None where the engine would not run them so. ``inner``: y goes to another layer, so its time may come first in memory.
    """
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        with torch.autocast("cuda", enabled=False):
            x = _cast(first.steps[0], dtype)
            return run_both_cuda(_typed(first, x), _typed(second, x), lengths, inner)
    plans, given = [], []
    for side in (first, second):
        side = side._replace(initial=tuple(s.to(side.steps[0].dtype) for s in side.initial))
        native = not side.rows and not side.step.zoneout and native_form(side.step.cell) is not None
        whole = side.engine.whole(side.params, side.steps, side.rows, side.initial, native)
        if whole is None:
            return None
        plans.append(whole[0])
        given.append(whole[1])
    found = run_both((plans[0], plans[1]), given[0], given[1], lengths, inner)
    return None if found is None else (found[0], found[1:])


def _typed(side: Side, x: Tensor) -> Side:
    params = {name: _cast(p, x.dtype) for name, p in side.params.items()}
    rows, initial = (tuple(_cast(t, x.dtype) for t in group) for group in (side.rows, side.initial))
    steps = (x, *(_cast(t, x.dtype) for t in side.steps[1:]))
    return side._replace(params=params, steps=steps, rows=rows, initial=initial)


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


def weights_of(cells: Iterable[nn.Module], directions: int) -> list[Params | None]:
    """For each cell the tensors that stand for its weights, made here: autograd then adds their gradients on this stream,
    wherever they are used. Under autocast all are cast at once; otherwise the first direction, which runs on this stream,
    takes its own."""
    named = [named_tensors(cell) for cell in cells]
    if not torch.is_autocast_enabled("cuda"):
        return [
            {name: p.view_as(p) for name, p in found.items()} if k % directions else None
            for k, found in enumerate(named)
        ]
    found = [{name: p for name, p in one.items() if p.is_floating_point()} for one in named]
    tensors = [p for one in found for p in one.values()]
    cast = iter(cast_all(tensors, torch.get_autocast_dtype("cuda")))
    return [{name: next(cast) for name in one} for one in found]


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value
