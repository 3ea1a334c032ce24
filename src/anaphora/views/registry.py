"""Every view by name: what it needs from a trace, how to read it, where it can mislead."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views import alignment, length
from anaphora.views.picture import Chart, Picture


@dataclass(frozen=True)
class View:
    """One kind of picture of a trace."""

    name: str
    title: str
    needs: tuple[str, ...]
    """Names of arrays or tables the trace must hold."""
    reading: str
    caution: str
    without: str
    """Why a trace may lack them, as a sentence."""
    draw: Callable[..., Chart]

    def missing(self, trace: Trace) -> str | None:
        """None if this view can be drawn, else a sentence that says why not."""
        absent = [name for name in self.needs if name not in trace.arrays and name not in trace.tables]
        if not absent:
            return None
        return (
            f"The view {self.name} needs {', '.join(absent)}, which this trace does not hold: {self.without}"
        )


VIEWS = {
    view.name: view
    for view in (
        View(
            "alignment",
            alignment.TITLE,
            ("alignment",),
            alignment.READING,
            alignment.CAUTION,
            "the model has no attention; lstm-attention, gru-attention and transformer have.",
            alignment.alignment,
        ),
        View(
            "length",
            length.TITLE,
            ("examples",),
            length.READING,
            length.CAUTION,
            "it is made of many examples (model, length, value), not of one run.",
            length.from_trace,
        ),
    )
}


def view(name: str) -> View:
    """The view of that name, or a sentence with the nearest one."""
    if name in VIEWS:
        return VIEWS[name]
    near = difflib.get_close_matches(name, VIEWS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(VIEWS)}."
    raise AnaphoraError(f"There is no view {name!r}; {hint}")


def picture(trace: Trace, name: str, **options: Any) -> Picture:
    """The picture `name` of `trace`; options are those of the view (alignment: layer, head)."""
    chosen = view(name)
    reason = chosen.missing(trace)
    if reason is not None:
        raise AnaphoraError(reason)
    taken = set(inspect.signature(chosen.draw).parameters) - {"trace"}
    if not set(options) <= taken:
        unknown = ", ".join(sorted(set(options) - taken))
        raise AnaphoraError(f"The view {name} has no option {unknown}; it has {', '.join(sorted(taken))}.")
    chart = chosen.draw(trace, **options)
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    code = f'import anaphora as an\n\nm = an.load("RUN")\nm.probe("TEXT").view("{name}"{given}).save("{name}.html")'
    return Picture(chart, name=name, code=code)
