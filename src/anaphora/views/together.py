"""Several runs in one picture: one axis, one scale, and the difference where both are matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views import alignment as alone
from anaphora.views import flow
from anaphora.views.bars import Bars
from anaphora.views.heatmap import Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.scatter import Scatter

DIFFERENCE = " A difference is blue where a run looked more than {}, orange where it looked less."
Traces = Mapping[str, Trace]
"""The trace of each run, by the run's name."""


def gradients(traces: Traces) -> Panels:
    """The gradient of every run against distance, with respect to the same thing: states where all have them, else inputs."""
    pairs = [name for name, trace in traces.items() if "source_gradients" in trace.arrays]
    if pairs and len(pairs) < len(traces):
        raise AnaphoraError(
            f"{', '.join(pairs)} turns one sequence into another and the others do not: their gradients have no common axis."
        )
    if pairs:
        kinds = {"target_gradients": "the symbols that the decoder had written"}
    else:
        kinds = {
            kind: said
            for kind, said in flow.KINDS.items()
            if all(kind in trace.arrays for trace in traces.values())
        }
    if not kinds:
        raise AnaphoraError("these runs have no gradients with respect to the same thing.")
    charts: list[Any] = []
    for kind, said in kinds.items():
        lines = [Line(name, *flow.by_lag(trace.array(kind))) for name, trace in traces.items()]
        charts.append(
            Lines(
                "Gradient against distance",
                f"with respect to {said}; mean over all pairs so far apart",
                "symbols back",
                "‖∂L/∂·‖",
                lines,
                log=True,
            )
        )
        shares = [_share(line) for line in lines]
        charts.append(
            Lines(
                "As a share of each run's largest",
                f"with respect to {said}; slopes compare whatever the scale",
                "symbols back",
                "share",
                shares,
                log=True,
            )
        )
    return Panels(flow.TITLE, " · ".join(traces), charts, _proofs(traces), flow.READING, flow.CAUTION)


def _share(line: Line) -> Line:
    largest = max(line.y, default=0.0) or 1.0
    return Line(line.name, line.x, [y / largest for y in line.y])


def alignment(traces: Traces, *, layer: int | None = None, head: int | None = None) -> Panels:
    """The alignments of all runs on one scale; of those with the same symbols also what each is minus the first."""
    maps = {name: alone.alignment(trace, layer=layer, head=head) for name, trace in traces.items()}
    high = max(one.high for one in maps.values())
    first_name, first = next(iter(maps.items()))
    charts: list[Any] = []
    others = []
    for name, one in maps.items():
        one.title, one.high, one.notes = name, high, []
        charts.append(one)
        if one is first:
            continue
        if (one.rows, one.columns) == (first.rows, first.columns):
            others.append(_difference(name, one, first_name, first))
    differ = len(maps) - 1 - len(others)
    notes = (
        [
            f"{differ} of the runs cut the texts into other symbols than {first_name}: there is no difference to draw"
        ]
        if differ
        else []
    )
    return Panels(
        alone.TITLE,
        " · ".join(traces),
        [*charts, *others],
        [*notes, *_proofs(traces)],
        f"{alone.READING} All share one scale." + (DIFFERENCE.format(first_name) if others else ""),
        alone.CAUTION,
        least=max(300.0, 110.0 + 22.0 * max(len(one.columns) for one in maps.values())),
    )


def _difference(name: str, one: Heatmap, first_name: str, first: Heatmap) -> Heatmap:
    values = np.asarray(one.values - first.values, np.float32)
    most = float(np.abs(values).max(initial=0.0))
    subtitle = f"largest difference {most:.3g}" if most else "no difference: both are the same"
    most = most or 1.0
    return Heatmap(
        title=f"{name} − {first_name}",
        subtitle=subtitle,
        values=values,
        rows=one.rows,
        columns=one.columns,
        row_title=one.row_title,
        column_title=one.column_title,
        value_title="difference of attention",
        low=-most,
        high=most,
        signed=True,
    )


def beside(traces: Traces, draw: Callable[..., Any], options: Mapping[str, Any]) -> Panels:
    """The pictures of all traces, each chart under the name of its trace; charts of the same title share one scale."""
    drawn = {name: draw(trace, **options) for name, trace in traces.items()}
    groups: dict[str, list[Any]] = {}
    charts: list[Any] = []
    for name, picture in drawn.items():
        for chart in picture.charts if isinstance(picture, Panels) else [picture]:
            groups.setdefault(chart.title, []).append(chart)
            charts.append(chart)
            chart.title = f"{name}: {chart.title}"
    for group in groups.values():
        _one_scale(group)
    first = next(iter(drawn.values()))
    same = {chart.csv() for chart in drawn.values()}
    notes = ["no difference: all of them are the same"] if len(same) == 1 and len(drawn) > 1 else []
    return Panels(
        first.title.split(": ", 1)[-1],
        " · ".join(traces),
        charts,
        [*notes, *_proofs(traces)],
        first.reading,
        first.caution,
    )


def _one_scale(charts: list[Any]) -> None:
    """Give charts of one kind the greatest of their ranges."""
    if all(isinstance(chart, Heatmap) for chart in charts):
        low, high = min(chart.low for chart in charts), max(chart.high for chart in charts)
        for chart in charts:
            chart.low, chart.high = low, high
    elif all(isinstance(chart, Bars) for chart in charts):
        most = max(chart.greatest for chart in charts)
        for chart in charts:
            chart.most = most
    elif all(isinstance(chart, Lines | Scatter) for chart in charts):
        spans = [chart.spans() for chart in charts]
        for chart in charts:
            chart.span(
                *(
                    (min(one[0] for one in each), max(one[1] for one in each))
                    for each in zip(*spans, strict=True)
                )
            )


def _proofs(traces: Traces) -> list[str]:
    found = [trace.max_difference for trace in traces.values() if trace.max_difference is not None]
    return [f"probe against model: max |Δ| = {max(found):.2g}"] if found else []
