"""How one layer is run: what the backends are given, and the types they compute in."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from anaphora.engine import dispatch
from anaphora.engine.backends.base import LayerRun, Native, Params, Result, States
from anaphora.engine.backends.reference import reverse_rows
from anaphora.engine.prepare import COMPILED, Engine, warn_once
from anaphora.native.derived import Entry, entry, named_tensors
from anaphora.native.following import following, observed
from anaphora.nn import inside
from anaphora.nn.casting import cast_all
from anaphora.nn.recurrent_native import native_form, native_weights
from anaphora.nn.recurrent_step import LayerStep


def run_layer(run: LayerRun) -> Result:
    """Run one layer in one direction. ``params`` replaces some of the cell's parameters (weight dropout)."""
    if inside.recording():
        return _with_noted(run)
    reason = following(*run.steps, *run.rows, *run.initial)
    if reason is None:  # first: torch.compile follows no further
        cell = _cell_now(run)
        reason = cell.value.reason
    if reason is not None:
        return dispatch.run_layer(None, _plain(run, reason))
    engine, run = _complete(run, cell)
    dtype = _autocast_type(run)
    if dtype is None:
        return dispatch.run_layer(engine, _in_type(run, None))
    with torch.autocast(run.steps[0].device.type, enabled=False):
        return dispatch.run_layer(engine, _in_type(run, dtype))


def explain_layer(run: LayerRun) -> dispatch.Decision:
    """What :func:`run_layer` would choose, by the same steps."""
    reason = LOOKED_INTO if inside.recording() else following(*run.steps, *run.rows, *run.initial)
    if (reason := reason or _cell_now(run).value.reason) is not None:
        return dispatch.explain(None, _plain(run, reason))
    engine, run = _complete(run, _cell_now(run))
    return dispatch.explain(engine, _in_type(run, _autocast_type(run)))


def run_both_layers(first: LayerRun, second: LayerRun, inner: bool) -> tuple[Tensor, list[States]]:
    """Both directions of a layer on a GPU at the same time: y ``(B, T, 2H)`` and each direction's last states.

    They read the same x. ``inner``: y goes to another layer, so that how it lies in memory does not matter.
    """
    dtype = _autocast_type(first)
    (engine, one), (their_engine, other) = [_complete(run, _cell_now(run)) for run in (first, second)]
    one = _in_type(one, dtype)
    other = _in_type(other._replace(steps=(one.steps[0], *other.steps[1:])), dtype)  # x is cast once
    with nullcontext() if dtype is None else torch.autocast("cuda", enabled=False):
        return dispatch.run_both((engine, their_engine), (one, other), inner)


def engine_of(step: LayerStep) -> Engine:
    """The engine that runs this cell, as it is now, in this mode; it lives as long as the cell."""
    return _engines(step.cell).value.of(step)


def hidden_from(cell: nn.Module) -> str | None:
    """Return who sees the parts of this cell, as it is now, so that its steps are to be computed one by one; None: no one does."""
    return _engines(cell).value.reason


class _Engines:
    """The engines of a cell by what a layer adds to it, and who sees the cell's parts, which no engine calls."""

    def __init__(self, cell: nn.Module):
        self._by_noise: dict[Hashable, Engine] = {}
        self.reason = observed(cell, traced=True)
        if self.reason is not None:
            warn_once(
                f"{type(cell).__name__} runs step by step in plain PyTorch, which is slower: {self.reason}."
            )

    def of(self, step: LayerStep) -> Engine:
        key = (step.masked, step.zoneout, step.keep if step.zoneout == "mean" else ())
        engine = self._by_noise.get(key)
        if engine is None:
            kind = None if step.masked or step.zoneout else native_form(step.cell)
            native = None if kind is None else Native(kind, partial(native_weights, step.cell))
            engine = self._by_noise.setdefault(key, Engine(step, type(step.cell).__name__, native))
        return engine


def _engines(cell: nn.Module) -> Entry[_Engines]:
    return entry(cell, lambda: _Engines(cell), reads="attributes")


def _cell_now(run: LayerRun) -> Entry[_Engines]:
    return _engines(_step(run).cell)


# ---------------------------------------------------------------------- what a backend is given
LOOKED_INTO = "its internals are being recorded"


def _step(run: LayerRun) -> LayerStep:
    step = run.step
    assert isinstance(step, LayerStep)
    return step


def _plain(run: LayerRun, reason: str) -> LayerRun:
    """The run for plain torch operations; torch.compile follows this call, so it is simple."""
    step = _step(run)
    own = replace(step, substitute=False) if run.params is None else step
    rest = (run.steps, run.rows, run.initial, run.lengths, run.reverse)
    return LayerRun(own, run.params, *rest, plain=reason)


def _complete(run: LayerRun, cell: Entry[_Engines]) -> tuple[Engine, LayerRun]:
    """The engine, and the run with all that a backend may need: every parameter, and PyTorch's own layer if there is one."""
    engine, params = cell.value.of(_step(run)), cell.tensors
    if run.params:
        params = {**params, **run.params}
    return engine, run._replace(params=params, native=engine.native)


def _autocast_type(run: LayerRun) -> torch.dtype | None:
    """The type a layer computes in under autocast; None where it keeps its own.

    On a GPU that is autocast's, the states included (sums and everything between the products are float32 all the
    same), as PyTorch's own layers do it. On the CPU it is the type of the weights.
    """
    kind = run.steps[0].device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return None
    if kind == "cuda":
        return torch.get_autocast_dtype("cuda")
    dtype = next((p.dtype for p in (run.params or {}).values() if p.is_floating_point()), None)
    return dtype if dtype in COMPILED else None


def _in_type(run: LayerRun, dtype: torch.dtype | None) -> LayerRun:
    x = run.steps[0]
    if dtype is None:
        return run._replace(initial=_cast(run.initial, x.dtype)) if x.is_cuda else run
    params = run.params or {}
    return run._replace(
        params=dict(zip(params, _cast(tuple(params.values()), dtype), strict=True)),
        steps=_cast(run.steps, dtype),
        rows=_cast(run.rows, dtype),
        initial=_cast(run.initial, dtype),
    )


def _cast(values: States, dtype: torch.dtype) -> States:
    return tuple([v.to(dtype) if v.is_floating_point() else v for v in values])


# ---------------------------------------------------------------------- a stack of layers on a GPU
def entering(x: Tensor) -> Tensor:
    """x ``(B, T, ·)`` in the type its layers compute in: cast once for all directions, and time first in memory, which is
    how kernels read it."""
    if not torch.is_autocast_enabled("cuda") or not x.is_floating_point():
        return x
    dtype = torch.get_autocast_dtype("cuda")
    if x.dtype == dtype:
        return x
    return x.transpose(0, 1).to(dtype, memory_format=torch.contiguous_format).transpose(0, 1)


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


# ---------------------------------------------------------------------- looking inside
def _with_noted(run: LayerRun) -> Result:
    """The reference loop, with what the cell notes at each step joined over time to ``(B, T, ·)``."""
    cell, lengths = _step(run).cell, run.lengths
    run = _plain(run, LOOKED_INTO)
    every_step: list[States] = []

    def watched(params: Params, now: States, constant: States, states: States) -> States:
        new = run.step(params, now, constant, states)
        if inside.intervened():
            place = _place(run, len(every_step))
            new = tuple(inside.changed(cell, name, s, place) for name, s in zip(cell.state, new, strict=True))
        every_step.append(new)
        return new

    with inside.record() as notes:
        y, last = dispatch.run_layer(None, run._replace(step=watched))

    def over_time(values: list[Tensor]) -> Tensor:
        joined = torch.stack(values, 1)
        if lengths is not None:
            time = torch.arange(joined.shape[1], device=joined.device)
            live = (time < lengths.to(joined.device)[:, None]).unsqueeze(-1)
            joined = torch.where(live, joined, joined.new_zeros(()))
        return reverse_rows(joined, lengths) if run.reverse else joined

    for i, name in enumerate(cell.state):
        if every_step:
            inside.note(cell, name, over_time([new[i] for new in every_step]))
    named: dict[tuple[int, str], list[inside.Note]] = {}
    for note in notes:
        named.setdefault((id(note.module), note.name), []).append(note)
    for group in named.values():
        inside.note(group[0].module, group[0].name, over_time([n.value for n in group]))
    return y, last


def _place(run: LayerRun, read: int) -> inside.Place:
    """Which step of the sequence comes after ``read`` others; a backward layer begins at each row's own end."""
    if not run.reverse:
        return read
    return run.steps[0].shape[1] - 1 - read if run.lengths is None else run.lengths - 1 - read
