"""Every view by name: what it needs from a trace, how to read it, where it can mislead."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views import alignment, length, samples, training
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
    of: str = "probe"
    """What the trace is of: "probe" (one input through a model), "history" (the course of trainings) or
    "examples" (many results)."""

    def options(self) -> list[str]:
        """Names of what ``draw`` takes besides the trace."""
        return [name for name in inspect.signature(self.draw).parameters if name != "trace"]

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
            of="examples",
        ),
        View(
            "curves",
            training.CURVES_TITLE,
            ("steps", "dev"),
            training.CURVES_READING,
            training.CURVES_CAUTION,
            "it is made of the journals of runs, not of one input.",
            training.curves,
            of="history",
        ),
        View(
            "samples",
            samples.TITLE,
            ("samples",),
            samples.READING,
            samples.CAUTION,
            "it is made of the journals of runs, not of one input.",
            samples.samples,
            of="history",
        ),
        View(
            "health",
            training.HEALTH_TITLE,
            ("steps",),
            training.HEALTH_READING,
            training.HEALTH_CAUTION,
            "it is made of the journals of runs, not of one input.",
            training.health,
            of="history",
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
    taken = set(chosen.options())
    if not set(options) <= taken:
        unknown = ", ".join(sorted(set(options) - taken))
        has = f"it has {', '.join(sorted(taken))}" if taken else "it has none"
        raise AnaphoraError(f"The view {name} has no option {unknown}; {has}.")
    chart = chosen.draw(trace, **options)
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    source = {"probe": 'an.load("RUN").probe("TEXT")', "history": 'an.history("RUN")'}.get(chosen.of, "trace")
    code = f'import anaphora as an\n\n{source}.view("{name}"{given}).save("{name}.html")'
    return Picture(chart, name=name, code=code)
