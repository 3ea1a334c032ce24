"""Codes of positions: how often a Transformer that has them is right, and what they look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.views.curve import Curve, Series
from anaphora.views.length import wilson
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.picture import Picture

TITLE = "Codes of positions"
READING = (
    "Above, the share of right answers to the question which letter stands two places before, in rows as long as those of "
    "training, and at places of longer rows that training has never seen. Below, how large the code of each place is: counting grows without bound, until it drowns the symbols. "
    "Last, how far neighbours are apart: dividing makes a step smaller the longer the row is, so that no place has a code of "
    "its own; binary digits jump, so that near places may look far apart; sines keep the same step everywhere."
)
CAUTION = (
    "One small model, one easy problem, one seed, few steps: with more of them other codes may come up. No code here carries "
    "far beyond the lengths of training; learned vectors exist only for places that training has seen."
)


def picture(found: Mapping[str, Any]) -> Picture:
    """The picture of what the study of positions found."""
    return Picture(positions(found), name="positions")


def positions(found: Mapping[str, Any]) -> Panels:
    """Right answers, sizes and steps of the codes."""
    codes = found["codes"]
    lines = []
    for name in ("trained", "longer"):
        shares = [row[name] for row in codes.values()]
        lows, highs = zip(*(wilson(share, found["examples"]) for share in shares), strict=True)
        lines.append(Series(f"{name} lengths", shares, [*lows], [*highs], [found["examples"]] * len(shares)))
    charts: list[Any] = [
        Curve(
            title="Right answers",
            subtitle=f"a guess is right in {found['guess']:.1%}",
            x_title="code",
            y_title="share",
            places=list(codes),
            series=lines,
        ),
        _chart(codes, "sizes", "How large the code is", "‖P[p]‖"),
        _chart(codes, "steps", "How far neighbours are apart", "‖P[p+1] − P[p]‖"),
    ]
    subtitle = (
        f"{found['examples']} test rows per point · bands: 95 % Wilson intervals as if a row were one answer"
    )
    return Panels(TITLE, subtitle, charts, notes=table(found), reading=READING, caution=CAUTION)


def table(found: Mapping[str, Any]) -> list[str]:
    """A line for each code."""
    return [
        f"{name}: {row['trained']:.1%} right ({row['longer']:.1%} at places never seen), largest value {row['largest']:.3g}, "
        f"steps {row['least_step']:.2g} to {row['greatest_step']:.2g}, moves by {row['shift']:.2g} in a longer row"
        for name, row in found["codes"].items()
    ]


def _chart(codes: Mapping[str, Any], values: str, title: str, y_title: str) -> Lines:
    lines = [
        Line(name, [float(place) for place in range(len(row[values]))], row[values])
        for name, row in codes.items()
        if name != "none"
    ]
    return Lines(
        title=title,
        subtitle="over the places of a row of 64",
        x_title="place p",
        y_title=y_title,
        lines=lines,
    )
