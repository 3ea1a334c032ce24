"""The course of a training: loss and dev measures over the steps, and the signs of health beside them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels

CURVES_TITLE = "Training curves"
CURVES_READING = (
    "The first panel is the loss per symbol, each run in its colour: dashed on the training data (pale as it was logged, "
    "strong smoothed), solid on the dev data. The other panels are the dev measures. A dev loss that rises while the training loss falls is overfitting."
)
CURVES_CAUTION = (
    "Training loss is measured with dropout and smoothed labels, dev loss without, so the two lines need not meet. "
    "Compare runs only on the same dev data and the same symbols."
)
HEALTH_TITLE = "Optimisation health"
HEALTH_READING = (
    "Length of the gradient before clipping, the share of steps whose gradient was clipped, and the learning rate. "
    "A gradient that grows by powers of ten is exploding; one that shrinks to nothing while the loss stays high "
    "is vanishing."
)
HEALTH_CAUTION = (
    "Each point is the mean over the steps since the line before, so single spikes are flattened."
)
AXES = {"step": "step", "symbols": "symbols", "seconds": "seconds"}


def curves(trace: Trace, *, x: str = "step", log: bool = False) -> Panels:
    """Loss and every dev measure against ``x``: step, symbols or seconds."""
    trace = replace(trace, tables={**trace.tables, "dev": _told(trace)})
    places = _places(trace, x)
    train = [
        Line(name, *_along(places, rows, "loss"), smooth=True)
        for name, rows in _by_run(trace, "steps").items()
    ]
    measures = dict.fromkeys(str(row["measure"]) for row in trace.tables["dev"])
    panels = []
    if train or "loss" in measures:
        runs = [line.name for line in train]
        dev = [
            replace(line, colour=runs.index(line.name.removesuffix(" dev")) if train else None)
            for line in _dev_lines(trace, places, "loss", " dev" if train else "")
            if not train or line.name.removesuffix(" dev") in runs
        ]
        panels.append(
            _panel("Loss", "loss per symbol", x, [*_named(train, " train"), *dev], trace, places, log)
        )
    for measure in measures:
        if measure != "loss":
            lines = _dev_lines(trace, places, measure, "")
            panels.append(_panel(measure, f"{measure} on dev data", x, lines, trace, places, False))
    if not panels:
        raise AnaphoraError(
            "The run has logged nothing yet; look again after `log_every` steps, or lower log_every."
        )
    return Panels(
        CURVES_TITLE,
        _subtitle(trace),
        panels,
        notes=_findings(trace),
        reading=CURVES_READING,
        caution=CURVES_CAUTION,
    )


def health(trace: Trace, *, x: str = "step") -> Panels:
    """Gradient norm, share of clipped steps and learning rate against ``x``."""
    places = _places(trace, x)
    runs = _by_run(trace, "steps")
    if not runs:
        raise AnaphoraError(
            "The run has logged no step; models that are fitted in one go have no course to draw."
        )
    panels = []
    for key, title, log in (
        ("grad_norm", "Gradient norm before clipping", True),
        ("clipped", "Share of clipped steps", False),
        ("lr", "Learning rate", False),
    ):
        lines = [Line(name, *_along(places, rows, key)) for name, rows in runs.items()]
        panels.append(_panel(title, title.lower(), x, lines, trace, places, log))
    notes = [_clipping(name, rows) for name, rows in runs.items()] + _findings(trace)
    return Panels(
        HEALTH_TITLE,
        _subtitle(trace),
        panels,
        notes=[note for note in notes if note],
        reading=HEALTH_READING,
        caution=HEALTH_CAUTION,
    )


Places = dict[str, list[tuple[float, float]]]
"""For each run, steps and where they lie on the x axis."""


def _places(trace: Trace, x: str) -> Places:
    if x not in AXES:
        raise AnaphoraError(f"x must be one of {', '.join(AXES)}, not {x!r}.")
    if x == "step":
        return {}
    table = "steps" if x == "symbols" else "seconds"
    return {
        name: sorted((float(row["step"]), float(row[x])) for row in rows if x in row)
        for name, rows in _by_run(trace, table).items()
    }


def _place(places: Places, run: str, step: float) -> float:
    """Where a step lies: between the nearest two that are known."""
    if run not in places or not places[run]:
        return step
    known = places[run]
    before = [pair for pair in known if pair[0] <= step] or [(0.0, 0.0)]
    after = [pair for pair in known if pair[0] >= step]
    (s0, x0), (s1, x1) = before[-1], after[0] if after else before[-1]
    return x0 + (x1 - x0) * (step - s0) / (s1 - s0) if s1 > s0 else x0


def _along(places: Places, rows: list[dict[str, Any]], key: str) -> tuple[list[float], list[float]]:
    kept = [row for row in rows if isinstance(row.get(key), int | float)]
    return [_place(places, str(row["run"]), float(row["step"])) for row in kept], [
        float(r[key]) for r in kept
    ]


def _by_run(trace: Trace, table: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in trace.tables[table]:
        found.setdefault(str(row["run"]), []).append(row)
    return found


def _dev_lines(trace: Trace, places: Places, measure: str, suffix: str) -> list[Line]:
    lines = []
    for name, rows in _by_run(trace, "dev").items():
        chosen = [row for row in rows if row["measure"] == measure]
        if chosen:
            lines.append(Line(name + suffix, *_along(places, chosen, "value")))
    return lines


def _told(trace: Trace) -> list[dict[str, Any]]:
    """The dev measures, without the BLEU of runs where it says nothing: it is 0 throughout although outputs are right, since
    these have fewer than four words."""
    greatest: dict[tuple[str, str], float] = {}
    for row in trace.tables["dev"]:
        key = (str(row["run"]), str(row["measure"]))
        greatest[key] = max(greatest.get(key, 0.0), float(row["value"]))
    empty = {
        run
        for (run, measure), value in greatest.items()
        if measure == "bleu" and value == 0.0 < greatest.get((run, "exact_match"), 0.0)
    }
    return [row for row in trace.tables["dev"] if row["measure"] != "bleu" or str(row["run"]) not in empty]


def _named(lines: list[Line], suffix: str) -> list[Line]:
    return [
        replace(line, name=line.name + suffix, colour=number, dashed=True)
        for number, line in enumerate(lines)
    ]


def _panel(
    title: str, y_title: str, x: str, lines: list[Line], trace: Trace, places: Places, log: bool
) -> Lines:
    events = [
        (_place(places, str(row["run"]), float(row["step"])), str(row["event"]))
        for row in trace.tables["events"]
    ]
    return Lines(title, "", AXES[x], y_title, lines, log=log, events=events)


def _subtitle(trace: Trace) -> str:
    best: dict[str, dict[str, float]] = {}
    for row in trace.tables["dev"]:
        if row["best"]:
            best.setdefault(str(row["run"]), {})[str(row["measure"])] = float(row["value"])
    words = [
        f"{name}: best " + ", ".join(f"{measure} {value:.4g}" for measure, value in measures.items())
        for name, measures in best.items()
    ]
    return " · ".join(words) or ", ".join(str(name) for name in trace.facts["runs"])


def _findings(trace: Trace) -> list[str]:
    """Return how far the runs came that did not take all of their steps, then what the loop itself noticed, in its words, at
    most five of it."""
    came = [f"{run} {words}" for run, words in trace.facts.get("early", {}).items()]
    findings = [
        f"{r['run']}, step {r['step']}: {r['message']}" for r in trace.tables["events"] if r.get("message")
    ]
    more = [f"… and {len(findings) - 5} more findings in metrics.jsonl"] if len(findings) > 5 else []
    return [*came, *findings[:5], *more]


def _clipping(name: str, rows: list[dict[str, Any]]) -> str:
    shares = [float(row["clipped"]) for row in rows if isinstance(row.get("clipped"), int | float)]
    if not shares or not math.isfinite(sum(shares)):
        return ""
    share = sum(shares) / len(shares)
    return f"{name}: {100 * share:.0f} % of steps were clipped." if share > 0 else ""
