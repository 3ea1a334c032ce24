"""What an answer rests on: how much each place of the input spoke for or against it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.answers import in_words, percent
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.states import facts_line, proof

TITLE = "What the answer rests on"
READING = "A score of the answer, such as log p, is shared out over the input."
COLOURS = "Blue speaks for the answer, orange against it."
WAYS = {
    "integrated_gradients": "Integrated gradients sum to the difference between the input and an empty one (a baseline); the completeness "
    "error says how far the computed sum is from that.",
    "occlusion": "Occlusion is what the score loses when a place is left out or covered.",
    "picture_occlusion": "Occlusion of the picture is what the score loses when a square is covered.",
}
CAUTION = (
    "It answers a question about this model, not about the world: occlusion shows the model inputs unlike those of training, one "
    "place at a time, so that places which stand in for each other seem to matter little."
)
BASELINE = "Integrated gradients depend on the baseline, so that the two may differ."
METHODS = {"integrated_gradients": "integrated gradients", "occlusion": "occlusion"}
MOST_SYMBOLS = 160
GRID = 16


def attribution(trace: Trace, *, output: int | None = None) -> Panels:
    """Both methods over the input; ``output`` (from 1) picks one symbol or label of several that were put out."""
    there = [name for name in WAYS if name in trace.arrays]
    charts: list[Any] = []
    rows: list[tuple[str, NDArray[np.float64], str]] = []
    for name in there:
        axes = trace.arrays[name].axes
        values, label = _chosen(trace, name, output)
        if axes == ("row", "column"):
            charts.append(_grid(trace, values, METHODS.get(name, "occlusion of the picture")))
        elif len(axes) == 2 and output is None and len(values) <= 48:
            charts.append(_matrix(trace, name, values))
        else:
            rows.append((name, values if values.ndim == 1 else values.sum(0), label))
    if rows:
        charts.insert(0, _rows(trace, rows))
    colours = [COLOURS] if any(isinstance(chart, Heatmap) for chart in charts) else []
    reading = " ".join([READING, *colours, *(WAYS[name] for name in there)])
    caution = f"{CAUTION} {BASELINE}" if len(there) > 1 else CAUTION
    said = in_words(trace)
    subtitle = f"answer: {said} · {facts_line(trace)}" if said else facts_line(trace)
    return Panels(TITLE, subtitle, charts, [*_facts(trace), *proof(trace)], reading, caution)


def totals(trace: Trace, name: str, output: int | None = None) -> NDArray[np.float64]:
    """One number for each place of the input: of the whole answer, or of one ``output`` (from 1)."""
    axes = trace.arrays[name].axes
    values, _ = _chosen(trace, name, output)
    return values.sum(0) if len(axes) == 2 and axes != ("row", "column") and output is None else values


def _chosen(trace: Trace, name: str, output: int | None) -> tuple[NDArray[np.float64], str]:
    """The values of one output, and what it is called; without one those of all."""
    axes, values = trace.arrays[name].axes, np.asarray(trace.arrays[name].values, np.float64)
    if output is None:
        return values, ""
    if len(axes) != 2 or axes == ("row", "column"):
        raise AnaphoraError("This answer was shared out as a whole; leave output out.")
    if not 1 <= output <= len(values):
        raise AnaphoraError(f"The answer has outputs 1 to {len(values)}, not {output}.")
    return values[output - 1], trace.names(name, axes[0])[output - 1]


def _score(trace: Trace) -> str:
    """What was shared out, with its unit."""
    of = str(trace.facts.get("attribution", {}).get("of", "the answer"))
    return f"nats for (+) or against (−) {of}" if of.startswith("log p") else f"for (+) or against (−) {of}"


def _matrix(trace: Trace, name: str, values: NDArray[np.float64]) -> Heatmap:
    high = float(np.abs(values).max(initial=0.0)) or 1.0
    rows, columns = trace.arrays[name].axes
    return Heatmap(
        title=METHODS[name].capitalize(),
        subtitle="row: whose log p; column: which part of the input spoke for it",
        values=np.asarray(values, np.float32),
        rows=trace.names(name, rows),
        columns=trace.names(name, columns),
        row_title="output",
        column_title="input",
        value_title="nats for (+) or against (−) the output",
        low=-high,
        high=high,
        signed=True,
    )


def _rows(trace: Trace, rows: list[tuple[str, NDArray[np.float64], str]]) -> Heatmap | Lines:
    """One row for each method, all of one scale; many places are lines."""
    name, first, label = rows[0]
    axis, count = trace.arrays[name].axes[-1], len(first)
    what = f"for the output {label}" if label else ""
    if count > MOST_SYMBOLS or axis in ("frame",):
        step = float(trace.facts.get("frame_seconds", 1.0)) if axis == "frame" else 1.0
        lines = [
            Line(METHODS[key], [t * step for t in range(count)], values.tolist()) for key, values, _ in rows
        ]
        x_title = "seconds" if axis == "frame" and "frame_seconds" in trace.facts else "place"
        return Lines("Over the input", what, x_title, _score(trace), lines)
    values = np.stack([values for _, values, _ in rows])
    high = float(np.abs(values).max(initial=0.0)) or 1.0
    return Heatmap(
        title="Over the input",
        subtitle=what,
        values=np.asarray(values, np.float32),
        rows=[METHODS[key] for key, *_ in rows],
        columns=trace.names(name, axis),
        row_title="method",
        column_title="input",
        value_title=_score(trace),
        low=-high,
        high=high,
        signed=True,
    )


def _grid(trace: Trace, values: NDArray[np.float64], title: str) -> Heatmap:
    """A picture's attribution summed over squares."""
    rows, columns = (min(side, GRID) for side in values.shape)
    down = np.arange(values.shape[0]) * rows // values.shape[0]
    across = np.arange(values.shape[1]) * columns // values.shape[1]
    pooled = np.zeros((rows, columns))
    np.add.at(pooled, (down[:, None], across[None]), values)
    high = float(np.abs(pooled).max(initial=0.0)) or 1.0
    return Heatmap(
        title=title.capitalize(),
        subtitle=f"summed over {rows} × {columns} squares of the picture",
        values=np.asarray(pooled, np.float32),
        rows=[str(r + 1) for r in range(rows)],
        columns=[str(c + 1) for c in range(columns)],
        row_title="row",
        column_title="column",
        value_title=_score(trace),
        low=-high,
        high=high,
        signed=True,
    )


def _facts(trace: Trace) -> list[str]:
    known = trace.facts.get("attribution", {})
    notes = []
    if "baseline" in known:
        notes.append(
            f"{_worth(known)} for the input, {known['baseline']:.4g} for the baseline; completeness error "
            f"{100 * known['error']:.2g} % of their difference"
        )
    elif "value" in known:
        notes.append(f"{_worth(known)} for the input")
    if "without" in known:
        notes.append(f"occlusion: each place was {known['without']}")
    return notes


def _worth(known: Mapping[str, Any]) -> str:
    """``log p(technical): −0.43 (65 %)``."""
    of, value = str(known["of"]), float(known["value"])
    return f"{of}: {value:.4g}" + (
        f" ({percent(math.exp(min(value, 0.0)))})" if of.startswith("log p") else ""
    )
