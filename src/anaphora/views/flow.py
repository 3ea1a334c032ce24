"""Gradient flow: how much the loss at one symbol still feels of the state many symbols earlier."""

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

TITLE = "Gradient flow"
READING = (
    "The line is the length of the gradient of one loss with respect to the model so many symbols earlier, the mean over all "
    "pairs that far apart, on a logarithmic axis. A straight fall is vanishing, a rise exploding; a flat line can learn long "
    "dependencies."
)
CAUTION = "A gradient that arrives can be learned from, but need not have been."
SCALES = "Lines with respect to states and to inputs are not on one scale: compare their slopes."
KINDS = {
    "state_gradients": "the whole state after each symbol",
    "input_gradients": "the vector of each symbol",
}
DECADES = 8.0
MOST = 64


def gradients(trace: Trace) -> Panels:
    """Mean length against lag, and the whole matrix of pairs."""
    if "source_gradients" in trace.arrays:
        return _pairs(trace)
    there = [name for name in KINDS if name in trace.arrays]
    if not there:
        raise AnaphoraError(
            "This trace holds no gradients; probe with what=('gradients',), on a model that reads symbols."
        )
    lines = []
    for name in there:
        lags, means = by_lag(trace.array(name, "step", "time"))
        lines.append(Line(name.split("_")[0], lags, means))
    charts: list[object] = [
        Lines(
            "Gradient against distance",
            "; ".join(f"{name.split('_')[0]}: with respect to {KINDS[name]}" for name in there),
            "symbols back",
            "‖∂L/∂·‖",
            lines,
            log=True,
        ),
        _heat(trace, there[0], KINDS[there[0]]),
    ]
    caution = f"{CAUTION} {SCALES}" if len(there) > 1 else CAUTION
    return Panels(TITLE, facts_line(trace), charts, proof(trace), READING, caution)


def _pairs(trace: Trace) -> Panels:
    """An encoder-decoder's gradients: of each output symbol's loss to the source and to the output before it."""
    own = trace.array("target_gradients", "target", "fed")
    lags, means = by_lag(own)
    source = trace.array("source_gradients", "target", "source")
    charts: list[object] = [
        _heat(trace, "source_gradients", "each source symbol"),
        Lines(
            "Gradient of the source, mean over the output",
            "which source symbols the whole output hangs on",
            "source symbol",
            "‖∂L/∂x‖",
            [Line("source", [float(s + 1) for s in range(source.shape[1])], source.mean(0).tolist())],
            symbols=trace.names("source_gradients", "source"),
        ),
        Lines(
            "Gradient against distance in the output",
            "with respect to the symbols that the decoder had written",
            "symbols back",
            "‖∂L/∂·‖",
            [Line("output", lags, means)],
            log=True,
        ),
        _heat(trace, "target_gradients", "the symbols that the decoder had written"),
    ]
    return Panels(TITLE, facts_line(trace), charts, proof(trace), READING, CAUTION)


def by_lag(norms: NDArray[Any]) -> tuple[list[float], list[float]]:
    """Mean of ``norms`` (t, k) over all pairs with t − k = lag, for each lag ≥ 0 that has any.

    Losses of the whole sequence, of which there are not as many as places, stand at its end.
    """
    steps, times = norms.shape
    if steps != times:
        return [float(lag) for lag in range(times)], [float(m) for m in norms.mean(0)[::-1]]
    lags, means = [], []
    for lag in range(times):
        values = [norms[t, t - lag] for t in range(lag, min(steps, times))]
        if values:
            lags.append(float(lag))
            means.append(float(np.mean(values)))
    return lags, means


def _heat(trace: Trace, name: str, what: str) -> Heatmap:
    """The matrix of an array of gradients, in shades between the least and the greatest that are not zero, at most 8 decades."""
    looks, at = trace.arrays[name].axes
    values = np.asarray(trace.arrays[name].values[:MOST, :MOST], np.float64)
    rows = trace.names(name, looks) if len(trace.arrays[name].values) > 1 else ["the whole"]
    columns = trace.names(name, at)
    logs = np.log10(values, where=values > 0, out=np.full(values.shape, -np.inf))
    known = logs[np.isfinite(logs)]
    high = float(known.max()) if known.size else 0.0
    low = max(float(known.min()), high - DECADES) if known.size else -1.0
    low = low if low < high else high - 1.0
    cut = [] if values.shape == trace.arrays[name].values.shape else [f"the first {MOST} places of each side"]
    if not known.size:
        cut.append("no gradient arrives anywhere: all of them are zero")
    elif float(known.min()) < low:
        cut.append(f"palest: 10^{low:.3g} and less")
    return Heatmap(
        title=f"‖∂L/∂·‖ with respect to {what}",
        subtitle="row: whose loss; column: with respect to where (decimal logarithm)",
        values=np.asarray(logs, np.float32),
        rows=rows[: values.shape[0]],
        columns=columns[: values.shape[1]],
        row_title="loss of",
        column_title="with respect to",
        value_title="log₁₀ of the gradient's length",
        low=low,
        high=high,
        notes=cut,
    )
