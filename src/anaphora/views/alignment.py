"""The alignment: which source symbols the decoder attended to while it wrote each output symbol."""

from __future__ import annotations

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap

TITLE = "Alignment"
READING = (
    "Each row is one output symbol; the darker a cell (on a dark page: the brighter), the more of the decoder's "
    "attention went to that source symbol when it chose the output symbol. A row sums to 1."
)
CAUTION = (
    "Attention shows where the model read, not why it answered so (Jain & Wallace 2019; Wiegreffe & Pinter 2019): "
    "a state at one place may hold what stood at others. The output is fed to the decoder as shown, not chosen again."
)


def alignment(trace: Trace, *, layer: int | None = None, head: int | None = None) -> Heatmap:
    """The heatmap of a trace's alignment; `layer` and `head` (from 1) pick one of a Transformer's."""
    how = str(trace.facts.get("alignment") or "attention")
    if layer is None and head is None:
        values = trace.array("alignment", "target", "source")
    else:
        every = trace.array("cross_attention", "layer", "head", "target", "source")
        layers, heads = every.shape[:2]
        layer = layers if layer is None else layer
        if not 1 <= layer <= layers or (head is not None and not 1 <= head <= heads):
            raise AnaphoraError(
                f"This model has layers 1 to {layers} with heads 1 to {heads}, not {layer}, {head}."
            )
        chosen = every[layer - 1]
        values = chosen.mean(0) if head is None else chosen[head - 1]
        how = f"attention of layer {layer}, " + (f"mean of {heads} heads" if head is None else f"head {head}")
    notes = []
    if trace.max_difference is not None:
        notes.append(f"probe against model: max |Δ| = {trace.max_difference:.2g}")
    output = trace.facts.get("output")
    return Heatmap(
        title=TITLE,
        subtitle=f"{how} · output {output}" if output else how,
        values=np.asarray(values, np.float32),
        rows=trace.tokens["target"],
        columns=trace.tokens["source"],
        row_title="output",
        column_title="source",
        value_title="share of alignments" if how == "alignments" else "attention weight",
        high=_top_of_scale(float(values.max(initial=0.0))),
        notes=notes,
        reading=READING,
        caution=CAUTION,
    )


def _top_of_scale(greatest: float) -> float:
    """1 for sharp attention; less where all weights are small, so that they can be distinguished."""
    return next((top for top in (0.1, 0.2, 0.5) if greatest <= top), 1.0)
