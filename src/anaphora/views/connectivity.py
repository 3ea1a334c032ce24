"""Connectivity: which earlier symbols one output hangs on (Madsen, "Visualizing memorization in RNNs", Distill 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.highlight import Highlight
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.states import facts_line, proof

TITLE = "Connectivity"
PARTS = {
    "Output": "The framed symbol is where the output stands; the darker another one, the more the loss of that output changes with its vector: its share of the lengths ‖∂L/∂x‖ over the input. Click a symbol to ask about another output.",
    "Effective": "The line is the effective context of every output: how many symbols back hold 90 % of these shares.",
}
READING = " ".join(PARTS.values())
CAUTION = (
    "A gradient is about small changes of a vector, not about another symbol in its place: occlusion asks that. A short effective "
    "context may come from a text that needs no longer one."
)
SHARE = 0.9
MOST = 400


def connectivity(trace: Trace, *, output: int | None = None) -> Panels:
    """The shares of one ``output`` (from 1; by default the last), and the effective context of all."""
    norms, columns, outputs, own = _norms(trace)
    count = len(norms)
    if output is not None and not 1 <= output <= count:
        raise AnaphoraError(f"There are outputs 1 to {count}, not {output}.")
    chosen = count - 1 if output is None else output - 1
    shares = shares_of(norms)
    row = shares[chosen]
    first = max(0, min(chosen - MOST // 2, len(row) - MOST)) if own else 0
    shown = range(first, min(first + MOST, len(row)))
    high = float(row.max(initial=0.0)) or 1.0
    charts: list[Any] = [
        Highlight(
            f"Output {chosen + 1}: {outputs[chosen]}",
            "each symbol's share of the gradient's length",
            [columns[i] for i in shown],
            [float(row[i]) for i in shown],
            high=high,
            marked=chosen - first if own else None,
            said=[f"{columns[i]}: {100 * row[i]:.2f} % of ‖∂L/∂x‖ = {norms[chosen, i]:.4g}" for i in shown],
            opens=[f"output={i + 1}" for i in shown] if own else [],
        )
    ]
    if own and count > 1:
        reach = [effective_context(shares[t], t) for t in range(count)]
        line = Line("effective context", [float(t + 1) for t in range(count)], [float(r) for r in reach])
        charts.append(
            Lines(
                "Effective context",
                f"symbols back that hold {100 * SHARE:.0f} % · mean {np.mean(reach):.1f}",
                "output",
                "symbols back",
                [line],
                symbols=outputs if count <= 60 else [],
            )
        )
    notes = [f"symbols {first + 1} to {shown.stop} of {len(row)}"] if len(shown) < len(row) else []
    return Panels(TITLE, facts_line(trace), charts, [*notes, *proof(trace)], READING, CAUTION)


def _norms(trace: Trace) -> tuple[NDArray[Any], list[str], list[str], bool]:
    """The gradients, what they are with respect to, whose loss it is, and whether output t stands where symbol t was read."""
    name = "source_gradients" if "source_gradients" in trace.arrays else "input_gradients"
    looks, at = trace.arrays[name].axes
    norms = trace.array(name)
    outputs = trace.names(name, looks) if len(norms) > 1 else ["the whole"]
    return norms, trace.names(name, at), outputs, at == "time" and len(outputs) == norms.shape[1]


def shares_of(norms: NDArray[Any]) -> NDArray[np.float64]:
    """Each row divided by its sum; rows of zeros stay."""
    values = np.asarray(norms, np.float64)
    found: NDArray[np.float64] = values / np.maximum(values.sum(1, keepdims=True), 1e-300)
    return found


def effective_context(shares: NDArray[np.float64], at: int) -> int:
    """The least distance d such that the places from ``at`` − d on hold 90 % of the shares up to ``at``."""
    back = shares[: at + 1][::-1].cumsum()
    return int(np.searchsorted(back, SHARE * back[-1] * (1 - 1e-12))) if back[-1] > 0 else 0
