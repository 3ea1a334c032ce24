"""Models put to work: outputs for many windows at once, networks and their ancestors alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anaphora.data.series_ahead import ROWS, point
from anaphora.data.series_windows import WindowBatch, Windows
from anaphora.models.forecaster_classical import Ancestor

__all__ = ["Found", "outputs", "point", "run"]
Floats = NDArray[np.float64]
Found = tuple[Floats, WindowBatch]


@torch.no_grad()
def outputs(model: Any, windows: Windows, chosen: Sequence[int]) -> Iterator[Found]:
    """The outputs (rows, P, H, targets) for the examples ``chosen``, batch by batch."""
    if isinstance(model, Ancestor):
        yield from _classical(model, windows, chosen)
        return
    for begin in range(0, len(chosen), ROWS):
        batch = windows.batch(chosen[begin : begin + ROWS])
        yield run(model, batch), batch


@torch.no_grad()
def run(model: Any, batch: WindowBatch) -> Floats:
    """A network's outputs for one batch."""
    t = batch.tensors(next(model.parameters()).device)
    out: Floats = model(t.x, t.future, t.lengths).double().cpu().numpy()
    return out


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
