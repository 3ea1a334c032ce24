"""The end of a series and what a forecaster expects to follow, with the interval that should hold it."""

from __future__ import annotations

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.lines import Band, Line, Lines
from anaphora.views.panels import Panels

TITLE = "Forecast"
READING = "The last values that were seen and the forecast after them, for each target; the band should hold 95 % of what comes."
CAUTION = (
    "The band is as wide as errors on the dev data, or of few dev data on the training data as well: it is right only if the future is like them. Of a model whose targets are 0s and 1s the "
    "line is a probability, and there is no band."
)
MOST = 6


def forecast(trace: Trace, *, output: int = 0) -> Panels:
    """A panel for each target, at most six; ``output``, counted from 1, shows one alone."""
    count = trace.array("forecast", "step", "output").shape[1]
    if not 0 <= output <= count:
        raise AnaphoraError(f"This series has outputs 1 to {count}, not {output}.")
    shown = [output - 1] if output else list(range(min(count, MOST)))
    names = trace.facts.get("outputs") or [f"output {at + 1}" for at in range(count)]
    left = [] if output or count <= MOST else [f"the first {MOST} of {count} targets"]
    steps = len(trace.array("forecast", "step", "output"))
    return Panels(
        TITLE,
        f"{trace.facts['text']}: {steps} steps ahead" if "text" in trace.facts else f"{steps} steps ahead",
        [target_ahead(trace, at, str(names[at])) for at in shown],
        left,
        READING,
        CAUTION,
    )


def target_ahead(trace: Trace, at: int, title: str = TITLE) -> Lines:
    """The end of target ``at`` (from 0) and its forecast with the interval, in the units of the data, from the arrays ``history``,
    ``forecast``, ``forecast_low`` and ``forecast_high``."""
    past = trace.array("history", "frame", "output")[:, at]
    mean, low, high = (
        trace.array(name, "step", "output")[:, at] for name in ("forecast", "forecast_low", "forecast_high")
    )
    before = [float(t) for t in range(1 - len(past), 1)]
    after = [float(h) for h in range(1, len(mean) + 1)]
    return Lines(
        title,
        "steps from now on, with the interval that should hold 95 % of what comes",
        "steps from now",
        "value",
        [
            Line("observed", before, past.tolist(), dots=len(past) < 120),
            Line("forecast", after, mean.tolist()),
        ],
        bands=[Band(after, low.tolist(), high.tolist(), line=1)],
    )
