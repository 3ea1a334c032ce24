"""A hidden Markov model at work: which state it was in, by what is known so far and by all that is known."""

from __future__ import annotations

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.panels import Panels

TITLE = "Hidden Markov model"
READING = (
    "Trellis: each column is one observation, each row one state, shaded by its probability. Named above it, and drawn as a line "
    "through it, is the path that is most probable as a whole (Viterbi)."
)
_GIVEN = {
    "smoothed": "A column is shaded by p(state | all observations), those after it too.",
    "filtered": "A column is shaded by p(state | the observations up to it).",
}
_MOVES = "Below: the probability of each next state (column) after a state (row)."
CAUTION = "The most probable path need not go through the most probable state of each column."
_UNNAMED = "States have no meaning of their own: the next fit may number them otherwise."
MOST = 120


def hmm(trace: Trace, *, by: str = "smoothed", steps: int = MOST) -> Panels:
    """The trellis ``by`` smoothed or filtered probabilities, the path, and the transitions."""
    if by not in ("smoothed", "filtered"):
        raise AnaphoraError(f"by must be smoothed or filtered, not {by!r}.")
    if by not in trace.arrays:
        raise AnaphoraError(f"This trace holds no {by} probabilities of states.")
    values = np.asarray(trace.array(by, "state", "time"), np.float32)[:, :steps]
    names = trace.tokens["state"]
    path = [int(s) for s in trace.array("viterbi", "time")[:steps]]
    likely = values.argmax(0).tolist()
    apart = sum(a != b for a, b in zip(path, likely, strict=True))
    trellis = Heatmap(
        title=f"Trellis ({by})",
        subtitle="Viterbi path: "
        + " → ".join(_runs([names[s] for s in path]))
        + f" · differs from the most probable state by itself at {apart} of {len(path)} observations",
        values=values,
        rows=names,
        columns=trace.tokens["time"][: values.shape[1]],
        row_title="state",
        column_title="observation",
        value_title=f"probability of the state, {by}",
        path=path,
    )
    charts: list[object] = [trellis]
    reading, caution = [READING, _GIVEN[by]], [CAUTION]
    if "transitions" in trace.arrays:
        charts.append(_transitions(trace))
        reading.append(_MOVES)
    if trace.facts.get("task") != "tag":
        caution.append(_UNNAMED)
    total = trace.arrays["viterbi"].values.shape[0]
    notes = [f"the first {len(path)} of {total} observations"] if total > len(path) else []
    likelihood = trace.facts.get("log_likelihood")
    words = "" if likelihood is None else f"log-likelihood {float(likelihood):.4f}"
    return Panels(TITLE, words, charts, notes, " ".join(reading), " ".join(caution))


def _transitions(trace: Trace) -> Heatmap:
    return Heatmap(
        title="Transitions",
        subtitle="probability of the next state (column) after a state (row)",
        values=np.asarray(trace.array("transitions", "state", "to"), np.float32),
        rows=trace.tokens["state"],
        columns=trace.tokens["to"],
        row_title="after",
        column_title="comes",
        value_title="probability",
    )


def _runs(names: list[str]) -> list[str]:
    """``a a b`` as ``a ×2, b``; at most twelve."""
    found: list[tuple[str, int]] = []
    for name in names:
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1] + 1)
        else:
            found.append((name, 1))
    shown = [f"{name} ×{count}" if count > 1 else name for name, count in found[:12]]
    return [*shown, "…"] if len(found) > 12 else shown
