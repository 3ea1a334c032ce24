"""How one layer is run: by the fastest way that computes the same."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import _get_tracing_state
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from anaphora.kernels.recurrence.backends.reference import Params, States, reverse_rows, run_reference
from anaphora.kernels.recurrence.choose import forced
from anaphora.kernels.recurrence.engine import Engine
from anaphora.nn import inside
from anaphora.nn.cell import Cell, named_tensors
from anaphora.nn.fingerprint import Derived
from anaphora.nn.recurrent_cuda import Side, run_both_cuda, run_cuda, side_by_side
from anaphora.nn.recurrent_native import native_form, run_native
from anaphora.nn.recurrent_step import LayerStep


class LayerRun(NamedTuple):
    """What :func:`run_layer` is given."""

    step: LayerStep
    params: Params | None
    steps: States
    rows: States
    initial: States
    lengths: Tensor | None
    reverse: bool


def run_both_layers(first: LayerRun, second: LayerRun, inner: bool) -> tuple[Tensor, list[States]]:
    """Both directions of a layer on a GPU at the same time: y ``(B, T, 2H)`` and either's last states.

    ``inner``: y goes to another layer, so that how it lies in memory does not matter.
    """
    if forced() not in (None, "persistent"):
        return _one_and_other(first, second)
    sides = [
        Side(engine_of(r.step), r.step, _all(r.step.cell, r.params), r.steps, r.rows, r.initial)
        for r in (first, second)
    ]
    found = run_both_cuda(sides[0], sides[1], first.lengths, inner)
    if found is not None:
        return found[0], list(found[1])
    return _one_and_other(first, second)


def _one_and_other(first: LayerRun, second: LayerRun) -> tuple[Tensor, list[States]]:
    results = side_by_side(partial(run_layer, *first), partial(run_layer, *second))
    return torch.cat([y for y, _ in results], -1), [last for _, last in results]


def run_layer(
    step: LayerStep,
    params: Params | None,
    steps: States,
    rows: States,
    initial: States,
    lengths: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, States]:
    """Run ``step`` over time. ``params`` replaces some of the cell's parameters (weight dropout).

    Shapes as in :func:`~anaphora.kernels.recurrence.backends.reference.run_reference`.
    """
    if inside.recording():
        return _run_recorded(step, params, steps, rows, initial, lengths, reverse)
    x = steps[0]
    plain = not rows and not step.zoneout
    native = plain and not transformed() and native_form(step.cell) is not None
    if x.is_cuda and not transformed():
        found = run_cuda(
            engine_of(step), step, _all(step.cell, params), steps, rows, initial, lengths, reverse
        )
        if found is not None:
            return found
    elif _engine_serves(step.cell, x) and not transformed():
        engine = engine_of(step)
        given = _all(step.cell, params)
        if torch.is_autocast_enabled("cpu"):  # compiled kernels keep to the weights' precision
            dtype = _weight_type(step.cell, x)
            steps, rows, initial = (tuple(t.to(dtype) for t in group) for group in (steps, rows, initial))
        ready = engine.prepared(given, steps, rows, initial)
        if not (native and (ready is None or ready.compiled is None)):
            return engine(given, steps, rows, initial, lengths, reverse)
    if native:
        return run_native(step.cell, x, initial, lengths, reverse, params)
    return _run_eager(step, params, steps, rows, initial, lengths, reverse)


def _all(cell: Cell, params: Params | None) -> Params:
    """Every parameter and buffer of the cell by name, those in ``params`` replaced."""
    found = named_tensors(cell)
    return {**found, **params} if params else found


def _engine_serves(cell: Cell, x: Tensor) -> bool:
    """On CPU the engine computes in the weights' precision."""
    return x.device.type == "cpu" and _weight_type(cell, x) in (torch.float32, torch.float64)


def _weight_type(cell: Cell, x: Tensor) -> torch.dtype:
    weight = next(cell.parameters(), x)
    return weight.dtype


def engine_of(step: LayerStep) -> Engine:
    """The engine that runs this cell, as it is now, in this mode; it lives as long as the cell."""
    attributes = step.cell.__dict__
    derived: Derived[dict[Hashable, Engine]] | None = attributes.get("_engines")
    if derived is None:
        derived = attributes.setdefault("_engines", Derived(dict))
    engines = derived.of(step.cell)
    key = (step.masked, step.zoneout, step.keep if step.zoneout == "mean" else ())
    engine = engines.get(key)
    return engine or engines.setdefault(key, Engine(step, type(step.cell).__name__))


def _run_eager(
    step: LayerStep,
    params: Params | None,
    steps: States,
    rows: States,
    initial: States,
    lengths: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, States]:
    if params is None:
        step = replace(step, substitute=False)
    return run_reference(step, params or {}, steps, rows, initial, lengths, reverse)


def _run_recorded(
    step: LayerStep,
    params: Params | None,
    steps: States,
    rows: States,
    initial: States,
    lengths: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, States]:
    """The reference loop, with what the cell notes at each step joined over time to ``(B, T, ·)``."""
    every_step: list[States] = []

    def watched(params: Params, now: States, constant: States, states: States) -> States:
        new = step(params, now, constant, states)
        every_step.append(new)
        return new

    with inside.record() as notes:
        if params is None:
            step = replace(step, substitute=False)
        y, last = run_reference(watched, params or {}, steps, rows, initial, lengths, reverse)

    def over_time(values: list[Tensor]) -> Tensor:
        joined = torch.stack(values, 1)
        if lengths is not None:
            time = torch.arange(joined.shape[1], device=joined.device)
            live = (time < lengths.to(joined.device)[:, None]).unsqueeze(-1)
            joined = torch.where(live, joined, joined.new_zeros(()))
        return reverse_rows(joined, lengths) if reverse else joined

    for i, name in enumerate(step.cell.state):
        if every_step:
            inside.note(step.cell, name, over_time([new[i] for new in every_step]))
    named: dict[tuple[int, str], list[inside.Note]] = {}
    for note in notes:
        named.setdefault((id(note.module), note.name), []).append(note)
    for group in named.values():
        inside.note(group[0].module, group[0].name, over_time([n.value for n in group]))
    return y, last


def transformed() -> bool:
    """Whether torch.func, forward-mode derivatives or an export are at work, which only plain torch serves."""
    return (
        forward_ad._current_level >= 0
        or peek_interpreter_stack() is not None
        or is_compiling()
        or _get_tracing_state() is not None
    )
