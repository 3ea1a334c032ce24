"""Initial against trained weights: how far each part of a model moved, and where it came to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels

TITLE = "Initial against trained weights"
PARTS = {
    "Way from": "How far the weights are from those before the first step, as a share of their length then: of each part of one model, or of several models each as a whole.",
    "Way of what": "A part that began at 0 has no such share, so its way is drawn as it is.",
    "Weights": "How often each value stood among the weights at first (dashed) and in the last frame.",
    "Singular": "Last, the singular values of the largest matrix.",
}
READING = " ".join(PARTS.values())
CAUTION = (
    "A part that moves far is not for that more important: parts begin with lengths of their own. Frames have half precision, "
    "about three digits."
)


def change(trace: Trace, *, part: str = "all") -> Panels:
    """The course of ‖W − W₀‖/‖W₀‖, the histograms of the weights of ``part``, and the singular values of the largest matrix."""
    runs: list[str] = trace.facts["runs"]
    known = list(dict.fromkeys(row["part"] for row in trace.tables["moved"]))
    if part not in known:
        raise AnaphoraError(f"There is no part {part!r}; there are {', '.join(known)}.")
    one = len(runs) == 1
    kept = [row for row in trace.tables["moved"] if one or row["part"] == part]

    def named(row: dict[str, Any]) -> str:
        return str(row["part"] if one else row["run"])

    charts: list[Any] = []
    for title, unit, column, rows in (
        (
            "Way from the first weights",
            "‖W − W₀‖ / ‖W₀‖",
            "moved",
            [r for r in kept if r["moved"] is not None],
        ),
        ("Way of what began at 0", "‖W‖", "away", [r for r in kept if r["moved"] is None]),
    ):
        if rows:
            lines = _lines(rows, "step", column, named)
            charts.append(Lines(title, "of each part" if one else f"of {part}", "step", unit, lines))
    charts += [
        _pair(trace, "spread", f"Weights of {part}", "weight", "density", lambda row: row["part"] == part),
    ]
    if trace.tables["singular"]:
        names = ", ".join(dict.fromkeys(row["matrix"] for row in trace.tables["singular"]))
        charts.append(_pair(trace, "singular", f"Singular values of {names}", "rank", "σ", lambda row: True))
    notes = [f"{run} {words}" for run, words in trace.facts["early"].items()]
    return Panels(TITLE, ", ".join(runs), charts, notes, READING, CAUTION)


def _lines(rows: list[dict[str, Any]], x: str, y: str, name: Callable[[dict[str, Any]], str]) -> list[Line]:
    series: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        xs, ys = series.setdefault(name(row), ([], []))
        xs.append(float(row[x]))
        ys.append(float(row[y]))
    return [Line(key, xs, ys) for key, (xs, ys) in series.items()]


def _pair(
    trace: Trace, table: str, title: str, x_title: str, y_title: str, wanted: Callable[[dict[str, Any]], bool]
) -> Lines:
    """Draw the first (dashed) and the last frame, in one colour for each run."""
    runs: list[str] = trace.facts["runs"]
    x, y = ("value", "density") if table == "spread" else ("rank", "value")
    lines = []
    for number, run in enumerate(runs):
        for when, word in (("initial", "initial"), ("last", f"step {trace.facts['last'][run]:,}")):
            rows = [r for r in trace.tables[table] if r["run"] == run and r["when"] == when and wanted(r)]
            label = word if len(runs) == 1 else f"{run}, {word}"
            found = _lines(rows, x, y, lambda _, label=label: label)  # type: ignore[misc]
            lines += [Line(one.name, one.x, one.y, colour=number, dashed=when == "initial") for one in found]
    return Lines(title, "dashed: before the first step", x_title, y_title, lines)
