"""Loss against parameters, data and compute, with the power laws through the points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.picture import Picture

TITLE = "Loss against size"
READING = (
    "Dots are trainings: the least dev loss of a language model against the parameters it has, the characters it learned "
    "from, and the compute it was trained with. The line through them is a power law: each step to the right multiplies "
    "what is spent, and takes the same share off what can still be gained."
)
CAUTION = (
    "Small models, little text, one seed, and no setting chosen again for each size: the exponents belong to this range and "
    "to these settings. Few points fit almost any curve; do not extend the lines."
)
NAMES = {
    "parameters": "parameters without vectors of symbols",
    "data": "characters of training text",
    "compute": "floating point operations (6 · parameters · symbols)",
}


def picture(found: Mapping[str, Any]) -> Picture:
    """The picture of what the study of scaling found."""
    return Picture(scaling(found), name="scaling")


def scaling(found: Mapping[str, Any]) -> Panels:
    """Three charts with logarithmic axes."""
    charts = [_chart(found, axis) for axis in ("parameters", "data", "compute")]
    return Panels(TITLE, f"{found['corpus']} · dev loss in nats", charts, reading=READING, caution=CAUTION)


def law_text(law: Mapping[str, float] | None) -> str:
    """A power law in words."""
    if law is None:
        return "too few points for a law"
    floor = f"{law['floor']:.3g} + " if law["floor"] else ""
    return f"L ≈ {floor}{law['factor']:.3g} · x^−{law['exponent']:.3g} (R² {law['r2']:.3f})"


def _chart(found: Mapping[str, Any], axis: str) -> Lines:
    points, law = found["points"][axis], found["laws"][axis]
    lines = [Line("measured", [math.log10(p["x"]) for p in points], [p["loss"] for p in points], dots=True)]
    if law is not None:
        low, high = lines[0].x[0], lines[0].x[-1]
        places = [low + (high - low) * i / 40 for i in range(41)]
        height = [law["floor"] + law["factor"] * 10 ** (-law["exponent"] * x) for x in places]
        lines.append(Line("power law", places, height))
    if axis == "compute":
        lines += [
            Line(
                f"width {size}",
                [math.log10(p["x"]) for p in curve if p["x"]],
                [p["loss"] for p in curve if p["x"]],
            )
            for size, curve in found["curves"].items()
        ]
    return Lines(
        title=f"Loss against {axis}",
        subtitle=law_text(law),
        x_title=f"log₁₀ of {NAMES[axis]}",
        y_title="dev loss",
        lines=lines,
        log=True,
    )
