"""Gate regimes: which units remember, which forget, which are always open or shut (Karpathy et al. 2015)."""

from __future__ import annotations

import math

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.scatter import Point, Scatter
from anaphora.views.states import facts_line, proof

TITLE = "Gate regimes"
READING = (
    "Each dot is one unit of one gate. Right: the gate was open (above 0.9) at most symbols; high: it was shut (below "
    "0.1) at most; at the origin: it was half open all the time. A forget gate at the far right remembers almost "
    "for ever. Then the mean of each gate at each symbol, and each gate unit by unit over the symbols."
)
CAUTION = (
    "Shares are over the symbols of this one input; a short input makes them coarse. Implied memory assumes that a "
    "forget gate stays at its mean."
)
OPEN, SHUT = 0.9, 0.1
MOST_PLACES = 160
SIGMOID = ("input", "forget", "output", "update", "reset")


def gates(trace: Trace, *, side: str = "", layer: int | None = None, units: int = 12) -> Panels:
    """Saturation of every gate of every layer (or of one), the mean of each gate over time, and each gate of the ``units``
    that vary most at every symbol."""
    if not 1 <= units <= 128:
        raise AnaphoraError(f"units must be from 1 to 128, not {units}.")
    found, axis = _gates(trace, side)
    symbols = trace.tokens.get(axis, [])
    names = list(found)
    layers = next(iter(found.values())).shape[0]
    if layer is not None and not 1 <= layer <= layers:
        raise AnaphoraError(f"This model has layers 1 to {layers}, not {layer}.")
    shown = range(layers) if layer is None else [layer - 1]
    charts: list[object] = []
    notes = []
    for number in shown:
        points = [
            Point(x, y, f"{name} gate, unit {unit + 1}", group)
            for group, name in enumerate(names)
            for unit, (x, y) in enumerate(saturation(found[name][number]))
        ]
        charts.append(
            Scatter(
                f"Layer {number + 1}",
                f"{found[names[0]].shape[2]} units over {found[names[0]].shape[1]} symbols",
                f"share of symbols with the gate above {OPEN}",
                f"share below {SHUT}",
                points,
                names,
                x_range=(-0.02, 1.02),
                y_range=(-0.02, 1.02),
                guides=[((0.0, 1.0), (1.0, 0.0))],
                width=300.0,
                height=300.0,
            )
        )
        places = symbols[:MOST_PLACES]
        lines = [
            Line(name, list(range(1, len(places) + 1)), found[name][number, : len(places)].mean(-1).tolist())
            for name in names
        ]
        charts.append(
            Lines(
                f"Layer {number + 1}: mean of each gate",
                "over all units",
                "symbol",
                "mean",
                lines,
                symbols=places,
            )
        )
        charts += [_course(name, found[name][number], number + 1, places, units) for name in names]
        if "forget" in names:
            notes.append(_memory(found["forget"][number], number + 1))
    return Panels(TITLE, facts_line(trace), charts, [*notes, *proof(trace)], READING, CAUTION)


def _course(
    name: str,
    gate: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    layer: int,
    places: list[str],
    units: int,
) -> Heatmap:
    """One gate over time, a row for each of the units that vary most."""
    shown = gate[: len(places)].T
    rows = np.argsort(-shown.var(axis=1), kind="stable")[:units]
    return Heatmap(
        title=f"Layer {layer}: {name} gate, unit by unit",
        subtitle=f"{len(rows)} of {len(shown)} units, those that vary most first",
        values=np.asarray(shown[rows], np.float32),
        rows=[f"unit {unit + 1}" for unit in rows],
        columns=places,
        row_title="unit",
        column_title="symbol",
        value_title="gate: 0 shut, 1 open",
    )


def saturation(gate: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> list[tuple[float, float]]:
    """Of a gate ``(time, unit)``, for each unit the share of symbols above 0.9 and the share below 0.1."""
    return list(zip((gate > OPEN).mean(0).tolist(), (gate < SHUT).mean(0).tolist(), strict=True))


def memory(forget: float) -> float:
    """τ = −1 / ln f: after so many steps a cell that is multiplied by ``forget`` each time has fallen to 1/e."""
    return math.inf if forget >= 1 else 0.0 if forget <= 0 else -1 / math.log(forget)


def _memory(forget: np.ndarray[tuple[int, ...], np.dtype[np.float32]], layer: int) -> str:
    spans = sorted(memory(float(mean)) for mean in forget.mean(0))
    middle = spans[len(spans) // 2]
    return f"layer {layer}: implied memory τ = −1/ln f̄: median unit {middle:.3g} symbols, longest {spans[-1]:.3g}"


def _gates(
    trace: Trace, side: str
) -> tuple[dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]], str]:
    """The gates by name, and the axis of their symbols."""
    prefixes = {"": ("gate_", "decoder_gate_", "encoder_gate_")}.get(side, (f"{side}_gate_",))
    for prefix in prefixes:
        found = {g: trace.arrays[prefix + g].values for g in SIGMOID if prefix + g in trace.arrays}
        if found:
            return found, trace.arrays[prefix + next(iter(found))].axes[1]
    raise AnaphoraError(
        "This trace holds no gates: Elman cells, convolutions and Transformers have none; lstm and gru have."
    )
