"""Models put to work: outputs for many windows at once, networks and their ancestors alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anaphora.cancellation import each_step
from anaphora.data.series_ahead import ROWS, Chain, point
from anaphora.data.series_windows import WindowBatch, Windows
from anaphora.models.forecaster_ancestor import Ancestor
from anaphora.nn import NADE

__all__ = ["Found", "chain_of", "nade_of", "outputs", "point", "run", "run_unseen"]
Floats = NDArray[np.float64]
Found = tuple[Floats, WindowBatch]


@torch.no_grad()
def outputs(
    model: Any,
    windows: Windows,
    chosen: Sequence[int],
    *,
    by: Callable[[Any, WindowBatch], Floats] | None = None,
) -> Iterator[Found]:
    """The outputs (rows, P, H, targets) for the examples ``chosen``, batch by batch, of `run` or what is given as ``by``; like forecasts,
    those of targets that are never negative are not below 0."""
    for out, batch in _raw(model, windows, chosen, by or run):
        least = windows.floors(batch)
        yield out if least is None else np.maximum(out, least), batch


def _raw(
    model: Any, windows: Windows, chosen: Sequence[int], by: Callable[[Any, WindowBatch], Floats]
) -> Iterator[Found]:
    if isinstance(model, Ancestor):
        yield from _classical(model, windows, chosen)
        return
    for begin in each_step(range(0, len(chosen), ROWS)):
        batch = windows.batch(chosen[begin : begin + ROWS])
        yield by(model, batch), batch


@torch.no_grad()
def run(model: Any, batch: WindowBatch) -> Floats:
    """A network's outputs for one batch; those of joint targets are logits given the true values of the targets before."""
    t = batch.tensors(next(model.parameters()).device)
    given = () if nade_of(model) is None else (t.y,)
    out: Floats = model(t.x, t.future, t.lengths, *given).double().cpu().numpy()
    return out


@torch.no_grad()
def run_unseen(model: Any, batch: WindowBatch) -> Floats:
    """The outputs of one batch whose targets are not known: where they are joint, the parts of their `Chain`."""
    if nade_of(model) is None:
        return run(model, batch)
    t = batch.tensors(next(model.parameters()).device)
    out: Floats = torch.cat(model.parts(t.x, t.future, t.lengths), -1).double().cpu().numpy()
    return out


def nade_of(model: Any) -> NADE | None:
    """What lets the targets of a network depend on each other; None if they do not."""
    found = getattr(model, "nade", None)
    return found if isinstance(found, NADE) else None


def chain_of(model: Any) -> Chain | None:
    """The same for drawing, as arrays."""
    nade = nade_of(model)
    if nade is None:
        return None
    inward, outward = (w.detach().double().cpu().numpy() for w in (nade.inward, nade.outward))
    return Chain(inward, outward)


def _classical(model: Ancestor, windows: Windows, chosen: Sequence[int]) -> Iterator[Found]:
    """Series by series: the history of a series is filtered once for all its windows."""
    indices = np.asarray(chosen, dtype=np.int64)
    owners = windows.places[indices, 0]
    for number in np.unique(owners):
        mine = indices[owners == number]
        forecast = model.forecast(windows.standard[number], windows.places[mine, 1], windows.horizon)
        for begin in range(0, len(mine), ROWS):
            part = slice(begin, begin + ROWS)
            yield forecast[part, None], windows.batch(mine[part].tolist())
