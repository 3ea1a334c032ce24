"""The layer lens: at which layer the answer appears."""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.states import facts_line, proof

TITLE = "Layer lens"
PARTS = {
    "If this layer": "Each row is a layer, each column a place: the symbol that would come out if this layer were the last, on the shade of the probability that it gives to the model's own answer. The last row is the model itself.",
    "Rank": "Lines: the rank of the answer, layer by layer.",
}
READING = " ".join(PARTS.values())
CAUTION = (
    "Layers below the last were never trained to be read by the output, so a pale row may hold the answer in another form. The last "
    "row is checked against the model: where they differ there is no picture."
)
MOST = 32


def lens(trace: Trace, *, first: int = 1, place: int | None = None) -> Panels:
    """Places from ``first`` on; ``place`` (from 1; by default the last) has its ranks drawn."""
    shares = np.exp(np.asarray(trace.array("lens_log_probs", "layer", "time"), np.float64))
    ranks = trace.array("lens_ranks", "layer", "time")
    layers, count = shares.shape
    if not 1 <= first <= count or not 1 <= (place or 1) <= count:
        raise AnaphoraError(f"There are places 1 to {count}, not {place if place else first}.")
    shown = range(first - 1, min(first - 1 + MOST, count))
    best = {(row["layer"], row["place"]): row for row in trace.tables["lens"]}
    words = [[best[layer, t + 1]["pieces"][0] for t in shown] for layer in range(layers, 0, -1)]
    names = [f"layer {layer}" for layer in range(layers, 0, -1)]
    tokens = trace.tokens["time"]
    heat = Heatmap(
        title="If this layer were the last",
        subtitle="the best symbol of each layer after each place; shade: p of the model's own answer",
        values=np.asarray(shares[::-1, shown.start : shown.stop], np.float32),
        rows=names,
        columns=[tokens[t] for t in shown],
        row_title="layer",
        column_title="after",
        value_title="p of the model's own answer",
        words=words,
    )
    at = count - 1 if place is None else place - 1
    numbers = [float(layer) for layer in range(1, layers + 1)]
    answer = best[layers, at + 1]["pieces"][0]
    line = Line(f"rank of {answer}", numbers, [float(r) for r in ranks[:, at]])
    charts: list[Any] = [heat]
    if layers > 1:
        charts.append(
            Lines(
                "Rank of the answer",
                f"after place {at + 1} ({tokens[at]}); 1 is the best",
                "layer",
                "rank",
                [line],
                log=True,
            )
        )
    cut = count - len(shown)
    notes = [f"places {shown.start + 1} to {shown.stop} of {count}; first=… shows others"] if cut else []
    return Panels(TITLE, facts_line(trace), charts, [*notes, *proof(trace)], READING, CAUTION)
