"""Gate regimes: which units remember, which forget, which are always open or shut (Karpathy et al. 2015)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Layer, Trace
from anaphora.views import layers
from anaphora.views.heatmap import Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.scatter import Point, Scatter
from anaphora.views.states import facts_line, proof

TITLE = "Gate regimes"
READING = (
    "Each dot is one unit of one gate, a larger dot several. Right: the gate was open (above 0.9) at most symbols; high: it was "
    "shut (below 0.1) at most; at the origin: it was half open all the time. Then the mean of each gate while each symbol was "
    "read, and each gate unit by unit."
)
FORGET = "A forget gate at the far right remembers almost for ever."
CAUTION = "Shares are over the symbols of this one input; a short input makes them coarse."
IMPLIED = "Implied memory assumes that a forget gate stays at its mean."
OPEN, SHUT = 0.9, 0.1
MOST_PLACES = 160
PREFIX = "gate_"
Gate = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
"""The values of one gate, ``(time, unit)``."""


def gates(
    trace: Trace, *, side: str = "", layer: int | None = None, direction: str = "", units: int = 12
) -> Panels:
    """Saturation of every gate of every layer (or of one, or of one ``direction``), the mean of each gate over time, and each
    gate of the ``units`` that vary most at every symbol."""
    if not 1 <= units <= 128:
        raise AnaphoraError(f"units must be from 1 to 128, not {units}.")
    names = of_trace(trace, side)
    every = sorted({one for array in names.values() for one in trace.layers(array)})
    entries = [one for _, one in layers.chosen(every, layer, direction, every=True)]
    charts: list[object] = []
    notes = []
    for one in entries:
        found = {gate: _of_layer(trace, array, one) for gate, array in names.items()}
        there = {gate: values for gate, values in found.items() if values is not None}
        array = names[next(iter(there))]
        read = trace.names(array, layers.places_axis(trace, array))
        title = str(one).capitalize()
        charts += [_saturated(title, there), _mean(title, there, read[:MOST_PLACES], one)]
        charts += [
            _course(title, gate, values, read[:MOST_PLACES], units, one) for gate, values in there.items()
        ]
        if len(read) > MOST_PLACES:
            notes.append(f"{one}: courses of the first {MOST_PLACES} of {len(read)} symbols")
        if "forget" in there:
            notes.append(_memory(there["forget"], one))
    remembers = "forget" in names
    reading = f"{READING} {FORGET}" if remembers else READING
    caution = f"{CAUTION} {IMPLIED}" if remembers else CAUTION
    return Panels(TITLE, facts_line(trace), charts, [*notes, *proof(trace)], reading, caution)


def of_trace(trace: Trace, side: str = "") -> dict[str, str]:
    """The gates that a trace holds, and their arrays."""
    for side_prefix in layers.SIDES.get(side, (f"{side}_",)):
        prefix = f"{side_prefix}{PREFIX}"
        found = {name.removeprefix(prefix): name for name in trace.arrays if name.startswith(prefix)}
        if found:
            return found
    raise AnaphoraError(
        "This trace holds no gates: Elman cells, convolutions and Transformers have none; lstm and gru have."
    )


def _of_layer(trace: Trace, array: str, one: Layer) -> Gate | None:
    known = trace.layers(array)
    return np.asarray(trace.arrays[array].values[known.index(one)]) if one in known else None


def _saturated(title: str, found: Mapping[str, Gate]) -> Scatter:
    first = next(iter(found.values()))
    points = [
        Point(x, y, f"{name} gate, unit {unit + 1}", group)
        for group, (name, gate) in enumerate(found.items())
        for unit, (x, y) in enumerate(saturation(gate))
    ]
    return Scatter(
        title,
        f"{first.shape[1]} units over {first.shape[0]} symbols",
        f"share of symbols with the gate above {OPEN}",
        f"share below {SHUT}",
        points,
        list(found),
        x_range=(-0.02, 1.02),
        y_range=(-0.02, 1.02),
        guides=[((0.0, 1.0), (1.0, 0.0))],
        width=300.0,
        height=300.0,
    )


def _mean(title: str, found: Mapping[str, Gate], places: list[str], one: Layer) -> Lines:
    lines = [
        Line(name, [float(t + 1) for t in range(len(places))], gate[: len(places)].mean(-1).tolist())
        for name, gate in found.items()
    ]
    return Lines(f"{title}: mean of each gate", "over all units", _read(one), "mean", lines, symbols=places)


def _read(one: Layer) -> str:
    return "symbol read, from the end" if one.direction == "backward" else "symbol read"


def _course(title: str, name: str, gate: Gate, places: list[str], units: int, one: Layer) -> Heatmap:
    """One gate over time, a row for each of the units that vary most."""
    shown = gate[: len(places)].T
    rows = np.argsort(-shown.var(axis=1), kind="stable")[:units]
    return Heatmap(
        title=f"{title}: {name} gate, unit by unit",
        subtitle=f"{len(rows)} of {len(shown)} units, those that vary most first",
        values=np.asarray(shown[rows], np.float32),
        rows=[f"unit {unit + 1}" for unit in rows],
        columns=places,
        row_title="unit",
        column_title=_read(one),
        value_title="gate: 0 shut, 1 open",
    )


def saturation(gate: Gate) -> list[tuple[float, float]]:
    """Of a gate ``(time, unit)``, for each unit the share of symbols above 0.9 and the share below 0.1."""
    return list(zip((gate > OPEN).mean(0).tolist(), (gate < SHUT).mean(0).tolist(), strict=True))


def memory(forget: float) -> float:
    """τ = −1 / ln f: after so many steps a cell that is multiplied by ``forget`` each time has fallen to 1/e."""
    return math.inf if forget >= 1 else 0.0 if forget <= 0 else -1 / math.log(forget)


def _memory(forget: Gate, one: Layer) -> str:
    spans = sorted(memory(float(mean)) for mean in forget.mean(0))
    middle = spans[len(spans) // 2]
    return f"{one}: implied memory τ = −1/ln f̄: median unit {middle:.3g} symbols, longest {spans[-1]:.3g}"
