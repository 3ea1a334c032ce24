"""Unrolled time: what every unit of a layer did at every symbol, and what the model expected next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.panels import Panels
from anaphora.views.ranks import Ranks

TITLE = "States over time"
READING = (
    "Each row is one unit, each column one symbol: orange is negative, blue positive, pale about zero. A row that "
    "changes only at certain symbols may keep track of something. Below: what the model thought would come next."
)
CAUTION = (
    "The units shown are those that vary most over this one input. That a unit follows a pattern here does not show "
    "that it does so elsewhere, nor that the model uses it."
)
MOST_PLACES, MOST_ASKED = 160, 4096
TOP = 5


def states(
    trace: Trace,
    *,
    side: str = "",
    layer: int | None = None,
    units: int = 24,
    unit: int | None = None,
    of: str = "states",
    first: int = 1,
    places: int = MOST_PLACES,
) -> Panels:
    """The ``units`` that vary most of one layer (by default the last), or one ``unit`` alone (counted from 1), over so many
    ``places`` from the ``first`` on.

    ``side`` is ``encoder`` or ``decoder`` of an encoder-decoder; ``of`` is ``states``, or ``cells`` of an LSTM.
    """
    name, axis = find(trace, of, side)
    values = trace.array(name, "layer", axis, "unit")
    chosen = pick_layer(values, layer)
    if not 1 <= first <= len(chosen) or not 1 <= places <= MOST_ASKED:
        raise AnaphoraError(
            f"first must be from 1 to {len(chosen)} and places from 1 to {MOST_ASKED}, not {first} and {places}."
        )
    shown = slice(first - 1, first - 1 + places)
    matrix = chosen.T[:, shown]
    rows = _rows(matrix, units, unit)
    high = float(np.abs(matrix[rows]).max(initial=0.0)) or 1.0
    names = trace.tokens[axis][shown]
    which = f"layer {values.shape[0] if layer is None else layer} of {values.shape[0]}"
    heat = Heatmap(
        title="Units",
        subtitle=f"{which} · {len(rows)} of {chosen.shape[1]} units, those that vary most first",
        values=np.asarray(matrix[rows], np.float32),
        rows=[f"unit {r + 1}" for r in rows],
        columns=names,
        row_title="unit",
        column_title="symbol",
        value_title="value of the unit",
        low=-high,
        high=high,
        signed=True,
        reading=READING,
        caution=CAUTION,
    )
    charts: list[object] = [heat]
    ranks = top_symbols(trace, axis)
    if ranks is not None:
        charts.append(ranks)
    cut = len(trace.tokens[axis]) - len(names)
    notes = [f"symbols {first} to {first - 1 + len(names)} of {len(names) + cut}"] if cut else []
    return Panels(TITLE, facts_line(trace), charts, [*notes, *proof(trace)], READING, CAUTION)


def top_symbols(trace: Trace, axis: str) -> Ranks | None:
    """The table ``top`` (one record of ``pieces`` and ``log_probs`` per place) as a chart, where there is one."""
    rows = trace.tables.get("top", [])
    places = trace.tokens.get(axis, [])
    if not rows or len(rows) != len(places):
        return None
    ranks = [
        [
            (str(p), float(np.exp(v)) if v is not None else 0.0)
            for p, v in zip(row["pieces"], row["log_probs"], strict=True)
        ][:TOP]
        for row in rows
    ]
    given = str(trace.facts.get("places", "written"))
    shown = (
        places if given == "read" else ["▸", *places[:-1]]
    )  # an output symbol is expected before it is written
    return Ranks("What the model expected", "after each symbol", shown, ranks)


def find(trace: Trace, kind: str, side: str) -> tuple[str, str]:
    """Name and time axis of the array ``kind``: the only one there is, or that of the ``side``."""
    there = {
        "": (kind, "time"),
        "decoder": (f"decoder_{kind}", "target"),
        "encoder": (f"encoder_{kind}", "source"),
    }
    if side not in there:
        raise AnaphoraError(f"side must be encoder or decoder, not {side!r}.")
    candidates = [there[side]] if side else list(there.values())
    for name, axis in candidates:
        if name in trace.arrays:
            return name, axis
    known = ", ".join(sorted(name for name in trace.arrays if "layer" in trace.arrays[name].axes)) or "none"
    raise AnaphoraError(
        f"This trace holds no {side + ' ' if side else ''}{kind} of layers; of layers it holds {known}."
    )


def pick_layer(values: NDArray[np.float32], layer: int | None) -> NDArray[np.float32]:
    """One layer, counted from 1; the last if none is named."""
    count = values.shape[0]
    if layer is not None and not 1 <= layer <= count:
        raise AnaphoraError(f"This model has layers 1 to {count}, not {layer}.")
    return np.asarray(values[-1 if layer is None else layer - 1])


def proof(trace: Trace) -> list[str]:
    """The sentences that say how far the probe was from the model, and from its predictions."""
    gap = trace.max_difference
    return ([] if gap is None else [f"probe against model: max |Δ| = {gap:.2g}"]) + heard_once(trace)


def heard_once(trace: Trace) -> list[str]:
    """Of a transcriber whose predictions are the mean over several voices, the sentence that a probe hears one of them."""
    voices = int(trace.facts.get("voices", 1))
    if voices == 1:
        return []
    return [
        f"heard once, as it was recorded; predict hears it as {voices} voices and averages them, so its text may differ (voices=1 is this one)"
    ]


def facts_line(trace: Trace) -> str:
    """What was probed, in a line."""
    parts = [str(trace.facts[key]) for key in ("task", "preset") if key in trace.facts]
    text = str(trace.facts.get("text", ""))
    return " · ".join([*parts, text[:120] + ("…" if len(text) > 120 else "")] if text else parts)


def _rows(matrix: NDArray[np.float32], units: int, unit: int | None) -> list[int]:
    if unit is not None:
        if not 1 <= unit <= len(matrix):
            raise AnaphoraError(f"This layer has units 1 to {len(matrix)}, not {unit}.")
        return [unit - 1]
    if not 1 <= units <= 256:
        raise AnaphoraError(f"units must be from 1 to 256, not {units}.")
    order = np.argsort(-matrix.var(axis=1), kind="stable")
    return [int(r) for r in order[:units]]
