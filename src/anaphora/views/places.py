"""Positions: how a Transformer knows where a symbol stands."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.nn.positions import Rotary, Sinusoidal
from anaphora.probe.trace import Array, Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels

TITLE = "Positions"
READING = (
    "Above: the vector that is added at each position, fast waves at the left, slow ones at the right. Below: how "
    "alike the vectors of two positions are (their dot product over their width), against their distance."
)
CAUTION = "Nearness of these vectors says what the model could use, not what it learned to use."
MOST_COLUMNS = 96


def positions(trace: Trace) -> Panels:
    """The table of a trace's model ``positions`` (step, unit)."""
    table = np.asarray(trace.array("positions", "step", "unit"), np.float64)
    return draw(table, str(trace.facts.get("positions", "positions of the model")))


def position_trace(
    kind: str = "sinusoidal", *, length: int = 64, width: int = 64, base: float = 10000.0
) -> Trace:
    """A trace of positions by themselves: ``sinusoidal``, or ``rotary`` (as it turns the vector 1, 0, 1, 0, …); no model needed."""
    if not (2 <= length <= 1024 and 2 <= width <= 1024 and width % 2 == 0):
        raise AnaphoraError("length and width must be from 2 to 1024, and width even.")
    like = torch.zeros(1, length, width, dtype=torch.float64)
    if kind == "sinusoidal":
        table = Sinusoidal(width, base=base)(like)[0]
    elif kind == "rotary":
        level = torch.zeros(length, width, dtype=torch.float64)
        level[:, ::2] = 1.0  # the vector (1, 0, 1, 0, …), as each position turns it
        table = Rotary(base=base)(level)
    else:
        raise AnaphoraError(f"kind must be sinusoidal or rotary, not {kind!r}.")
    arrays = {"positions": Array(("step", "unit"), table.numpy())}
    return Trace({}, arrays, {"positions": f"{kind}, width {width}, base {base:g}"})


def draw(table: NDArray[np.float64], name: str) -> Panels:
    """The table as a heatmap, and likeness against distance."""
    length, width = table.shape
    every = max(1, width // MOST_COLUMNS)
    high = float(np.abs(table).max(initial=0.0)) or 1.0
    heat = Heatmap(
        title="Vectors",
        subtitle=f"{name} · {length} positions"
        + (f", every {every}th of {width} units" if every > 1 else ""),
        values=np.asarray(table[:64, ::every], np.float32),
        rows=[str(p) for p in range(min(length, 64))],
        columns=[str(u) for u in range(0, width, every)],
        row_title="position",
        column_title="unit",
        value_title="value",
        low=-high,
        high=high,
        signed=True,
    )
    products = table @ table.T / width
    lags = list(range(length))
    means = [float(np.mean(np.diagonal(products, lag))) for lag in lags]
    lines = Lines(
        "Likeness against distance",
        "mean over all pairs that far apart",
        "distance",
        "dot product / width",
        [Line(name.split(",")[0], [float(lag) for lag in lags], means)],
    )
    return Panels(TITLE, name, [heat, lines], [], READING, CAUTION)
