"""What language models of every kind learn in the same time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.views.colour import SERIES
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.picture import Picture

READING = (
    "Each line is one preset: its dev loss against the seconds its training steps took. Every model had the same time, and its "
    "learning rate fell to the end of it; so compare the right ends. The table has the steps that fitted in."
)
CAUTION = (
    "The pace belongs to this machine, and changes with what else runs on it. One seed, the preset's own sizes and learning "
    "rates; evaluations are not counted. More time favours larger models."
)


def picture(found: Mapping[str, Any]) -> Picture:
    """The picture of what the study of budgets found."""
    return Picture(budget(found), name="budget")


def budget(found: Mapping[str, Any]) -> Panels:
    """Loss against time, and a line for each model, the best first."""
    order = sorted(found["models"].items(), key=lambda item: item[1]["best"])
    lines = [
        Line(model, *_late(row, found["seconds"]), dashed=number >= SERIES)  # colours repeat
        for number, (model, row) in enumerate(order)
    ]
    notes = [
        f"{model}: {row['best']:.3f} nats a character after {row['steps']:,} steps of {1000 * row['pace']:.1f} ms, "
        f"{row['parameters']:,} parameters"
        for model, row in order
    ]
    chart = Lines(
        title="Loss against training time",
        subtitle="dev loss in nats per character, after the first fifth of the time",
        x_title="seconds of training",
        y_title="dev loss",
        lines=lines,
    )
    subtitle = f"{found['corpus']} · {found['characters']:,} characters · {found['seconds']:g} seconds each"
    return Panels("Loss at equal time", subtitle, [chart], notes=notes, reading=READING, caution=CAUTION)


def _late(row: Mapping[str, Any], seconds: float) -> tuple[list[float], list[float]]:
    """The evaluations after a fifth of the time, or all where there are none: the first losses are so high that they would
    press all others together."""
    points = list(zip(row["seconds"], row["losses"], strict=True))
    late = [point for point in points if point[0] >= seconds / 5] or points
    return [x for x, _ in late], [y for _, y in late]
