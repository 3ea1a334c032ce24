"""Unrolled time: what every unit of a layer did at every symbol, and what the model expected next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views import layers
from anaphora.views.heatmap import Heatmap
from anaphora.views.panels import Panels
from anaphora.views.ranks import Ranks

TITLE = "States over time"
READING = (
    "Each row is one unit; each column is the state after the symbol above it was read: orange is negative, blue positive, pale "
    "about zero. A row that changes only at certain symbols may keep track of something."
)
BOTH = " A backward direction reads from the end: its state at a symbol knows that symbol and those after it."
BELOW = "Below: what the model gave the highest probabilities there."
EXPECTED = {
    "next": ("What the model expected", "next, after each symbol that was read", "after"),
    "here": ("What the model would put", "at each place, by what stands around it", "at"),
    "tag": ("What the model tagged", "the most probable tags of each symbol", "at"),
}
"""By the fact ``top`` of a trace: what its table ``top`` is of, in the words of a chart."""
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
    direction: str = "",
    units: int = 24,
    unit: int | None = None,
    of: str = "states",
    first: int = 1,
    places: int = MOST_PLACES,
) -> Panels:
    """The ``units`` that vary most of one layer (by default the last), or one ``unit`` alone (counted from 1), over so many
    ``places`` from the ``first`` on; of a layer that reads both ways a picture for each ``direction``, or for one.

    ``side`` is ``encoder`` or ``decoder`` of an encoder-decoder; ``of`` is ``states``, or ``cells`` of an LSTM.
    """
    name = layers.find(trace, of, side)
    axis = layers.places_axis(trace, name)
    values, read = trace.array(name, "layer", axis, "unit"), trace.names(name, axis)
    known = trace.layers(name)
    entries = layers.chosen(known, layer, direction)
    if not 1 <= first <= len(read) or not 1 <= places <= MOST_ASKED:
        raise AnaphoraError(
            f"first must be from 1 to {len(read)} and places from 1 to {MOST_ASKED}, not {first} and {places}."
        )
    shown = slice(first - 1, first - 1 + places)
    matrices = [np.asarray(values[index]).T[:, shown] for index, _ in entries]
    rows = [_rows(matrix, units, unit) for matrix in matrices]
    high = max(float(np.abs(m[r]).max(initial=0.0)) for m, r in zip(matrices, rows, strict=True)) or 1.0
    charts: list[object] = [
        Heatmap(
            title=f"Units, {one.direction}" if one.direction else "Units",
            subtitle=f"{layers.of(one, known)} · {_said(kept, len(matrix), unit)}",
            values=np.asarray(matrix[kept], np.float32),
            rows=[f"unit {r + 1}" for r in kept],
            columns=read[shown],
            row_title="unit",
            column_title="last read, from the end" if one.direction == "backward" else "last read",
            value_title="value of the unit",
            low=-high,
            high=high,
            signed=True,
            reading=READING,
            caution=CAUTION,
        )
        for (_, one), matrix, kept in zip(entries, matrices, rows, strict=True)
    ]
    reading = READING + (BOTH if known[entries[-1][0]].direction else "")
    ranks = top_symbols(trace, name, axis)
    if ranks is not None:
        charts.append(ranks)
        reading += f" {BELOW}"
    notes = (
        [f"symbols {first} to {first - 1 + len(read[shown])} of {len(read)}"]
        if len(read[shown]) < len(read)
        else []
    )
    return Panels(TITLE, facts_line(trace), charts, [*notes, *proof(trace)], reading, CAUTION)


def _said(rows: list[int], count: int, unit: int | None) -> str:
    return (
        f"unit {rows[0] + 1} of {count}"
        if unit
        else f"{len(rows)} of {count} units, those that vary most first"
    )


def top_symbols(trace: Trace, name: str, axis: str) -> Ranks | None:
    """The table ``top`` (one record of ``pieces`` and ``log_probs`` per place) as a chart, where there is one for the places
    of the array ``name``: what comes after each symbol that was read or, by ``facts["top"]``, what stands there."""
    rows = trace.tables.get("top", [])
    places = trace.names(name, axis)
    if not rows or len(rows) != len(places) or axis == "source":
        return None
    ranks = [
        [
            (str(p), float(np.exp(v)) if v is not None else 0.0)
            for p, v in zip(row["pieces"], row["log_probs"], strict=True)
        ][:TOP]
        for row in rows
    ]
    title, subtitle, word = EXPECTED[str(trace.facts.get("top", "next"))]
    return Ranks(title, subtitle, places, ranks, word=word)


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
