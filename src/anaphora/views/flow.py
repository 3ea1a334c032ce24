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
    "The line is the length of the gradient of the loss at one symbol with respect to the model so many symbols "
    "earlier, the mean over all pairs that far apart, on a logarithmic axis. A straight fall is vanishing, a rise "
    "exploding; a flat line can learn long dependencies."
)
CAUTION = (
    "A gradient that arrives can be learned from, but need not have been. Lines with respect to states (recurrent "
    "networks) and to inputs (all models) are not on one scale: compare their slopes."
)
KINDS = {
    "state_gradients": "the whole state after each symbol",
    "input_gradients": "the vector of each symbol",
}
SMALLEST = 1e-12
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
        _matrix(trace, there[0]),
    ]
    return Panels(TITLE, facts_line(trace), charts, proof(trace), READING, CAUTION)


def _pairs(trace: Trace) -> Panels:
    """An encoder-decoder's gradients: of each output symbol's loss to the source and to the output before it."""
    own = trace.array("target_gradients", "step", "time")
    lags, means = by_lag(own)
    target = trace.tokens["target"]
    fed = ["<s>", *target[:-1]]
    source = trace.array("source_gradients", "target", "source")
    charts: list[object] = [
        _heat(source, target, trace.tokens["source"], "each source symbol"),
        Lines(
            "Gradient of the source, mean over the output",
            "which source symbols the whole output hangs on",
            "source symbol",
            "‖∂L/∂x‖",
            [Line("source", [float(s + 1) for s in range(source.shape[1])], source.mean(0).tolist())],
            symbols=trace.tokens["source"],
        ),
        Lines(
            "Gradient against distance in the output",
            "with respect to the symbols that the decoder had written",
            "symbols back",
            "‖∂L/∂·‖",
            [Line("output", lags, means)],
            log=True,
        ),
        _heat(own, target, fed, "the symbols written so far"),
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


def _matrix(trace: Trace, name: str) -> Heatmap:
    values = trace.array(name, "step", "time")
    names = trace.tokens.get("time", [str(i) for i in range(values.shape[1])])
    outputs = trace.tokens.get("step", names if len(names) == values.shape[0] else ["the whole"])
    return _heat(values, outputs, names, KINDS[name])


def _heat(norms: NDArray[Any], outputs: list[str], names: list[str], what: str) -> Heatmap:
    values = norms[:MOST, :MOST]
    logs = np.log10(np.maximum(values, SMALLEST))
    high = float(logs.max(initial=0.0))
    low = max(float(logs[values > SMALLEST].min(initial=high)), high - 8)
    return Heatmap(
        title=f"‖∂L/∂·‖ with respect to {what}",
        subtitle="row: whose loss; column: with respect to where (decimal logarithm)",
        values=np.asarray(np.maximum(logs, low), np.float32),
        rows=outputs[: values.shape[0]],
        columns=names[: values.shape[1]],
        row_title="loss at",
        column_title="with respect to",
        value_title="log₁₀ of the gradient's length",
        low=low,
        high=high if high > low else low + 1,
    )
