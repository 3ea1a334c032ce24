"""What an answer rests on: how much each place of the input spoke for or against it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.states import facts_line, proof

TITLE = "What the answer rests on"
READING = (
    "A score of the answer, such as log p, is shared out over the input: blue speaks for the answer, orange against it. "
    "Integrated gradients sum to the difference between the input and an empty one (a baseline); the completeness error says how "
    "far the computed sum is from that. Occlusion is what the score loses when a place is left out or covered."
)
CAUTION = (
    "Both answer a question about this model, not about the world. They may differ: integrated gradients depend on the baseline, and "
    "occlusion shows the model inputs unlike those of training, one place at a time, so that places which stand in for "
    "each other seem to matter little."
)
METHODS = {"integrated_gradients": "integrated gradients", "occlusion": "occlusion"}
MOST_SYMBOLS = 160
GRID = 16


def attribution(trace: Trace, *, output: int | None = None) -> Panels:
    """Both methods over the input; ``output`` (from 1) picks one symbol or label of several that were put out."""
    there = [name for name in (*METHODS, "picture_occlusion") if name in trace.arrays]
    charts: list[Any] = []
    for name in there:
        array = trace.arrays[name]
        values, label = _chosen(trace, np.asarray(array.values, np.float64), array.axes, output)
        title = METHODS.get(name, "occlusion of the picture")
        if array.axes == ("row", "column"):
            charts.append(_grid(values, title))
        elif len(array.axes) == 2 and output is None and len(values) <= 48:
            charts.append(_matrix(trace, values, array.axes, title))
        else:
            charts.append((title, array.axes[-1], values if values.ndim == 1 else values.sum(0), label))
    flat = [one for one in charts if isinstance(one, tuple)]
    charts = [one for one in charts if not isinstance(one, tuple)]
    if flat:
        charts.insert(0, _rows(trace, flat))
    return Panels(TITLE, facts_line(trace), charts, [*_facts(trace), *proof(trace)], READING, CAUTION)


def totals(trace: Trace, name: str, output: int | None = None) -> NDArray[np.float64]:
    """One number for each place of the input: of the whole answer, or of one ``output`` (from 1)."""
    array = trace.arrays[name]
    values, _ = _chosen(trace, np.asarray(array.values, np.float64), array.axes, output)
    return (
        values.sum(0)
        if len(array.axes) == 2 and array.axes != ("row", "column") and output is None
        else values
    )


def _chosen(
    trace: Trace, values: NDArray[np.float64], axes: tuple[str, ...], output: int | None
) -> tuple[NDArray[np.float64], str]:
    if output is None:
        return values, ""
    if len(axes) != 2 or axes == ("row", "column"):
        raise AnaphoraError("This answer was shared out as a whole; leave output out.")
    if not 1 <= output <= len(values):
        raise AnaphoraError(f"The answer has outputs 1 to {len(values)}, not {output}.")
    return values[output - 1], _names(trace, axes[0], len(values))[output - 1]


def _names(trace: Trace, axis: str, count: int) -> list[str]:
    if axis == "step" and "step" not in trace.tokens:  # a label for each place that was read
        axis = "time"
    return trace.tokens.get(axis, [str(i + 1) for i in range(count)])


def _matrix(trace: Trace, values: NDArray[np.float64], axes: tuple[str, ...], title: str) -> Heatmap:
    high = float(np.abs(values).max(initial=0.0)) or 1.0
    return Heatmap(
        title=title.capitalize(),
        subtitle="row: whose log p; column: which part of the input spoke for it",
        values=np.asarray(values, np.float32),
        rows=_names(trace, axes[0], values.shape[0]),
        columns=_names(trace, axes[1], values.shape[1]),
        row_title="output",
        column_title="input",
        value_title="nats for (+) or against (−) the output",
        low=-high,
        high=high,
        signed=True,
    )


def _rows(trace: Trace, flat: list[tuple[str, str, NDArray[np.float64], str]]) -> Heatmap | Lines:
    """One row for each method, all of one scale; many places are lines."""
    axis, label = flat[0][1], flat[0][3]
    count = len(flat[0][2])
    if count > MOST_SYMBOLS or axis in ("frame",):
        step = float(trace.facts.get("frame_seconds", 1.0)) if axis == "frame" else 1.0
        lines = [
            Line(title, [t * step for t in range(count)], values.tolist()) for title, _, values, _ in flat
        ]
        x_title = "seconds" if axis == "frame" and "frame_seconds" in trace.facts else "place"
        return Lines("Over the input", label, x_title, "nats for or against", lines)
    values = np.stack([values for _, _, values, _ in flat])
    high = float(np.abs(values).max(initial=0.0)) or 1.0
    return Heatmap(
        title="Over the input",
        subtitle=label and f"for the output {label}",
        values=np.asarray(values, np.float32),
        rows=[title for title, *_ in flat],
        columns=_names(trace, axis, count),
        row_title="method",
        column_title="input",
        value_title="for (+) or against (−) the answer",
        low=-high,
        high=high,
        signed=True,
    )


def _grid(values: NDArray[np.float64], title: str) -> Heatmap:
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
        value_title="nats for (+) or against (−) the answer",
        low=-high,
        high=high,
        signed=True,
    )


def _facts(trace: Trace) -> list[str]:
    known = trace.facts.get("attribution", {})
    notes = []
    if "error" in known:
        notes.append(
            f"{known['of']}: {known['value']:.4g} for the input, {known['baseline']:.4g} for the baseline; completeness error "
            f"{100 * known['error']:.2g} % of their difference"
        )
    if "without" in known:
        notes.append(f"occlusion: each place was {known['without']}")
    return notes
