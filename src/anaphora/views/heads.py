"""The head browser: every attention head at once, what kind each is, and what happens without it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.states import facts_line, proof
from anaphora.views.thumbnails import Thumbnail, Thumbnails

TITLE = "Attention heads"
READING = (
    "One square per head (click it to see it large); a row is the symbol that looks, a column the symbol looked at. Words below: the strongest "
    "of the measured habits (looks at the symbol before, at itself, at the first symbol, at the next) and, where "
    "it was measured, how much the loss rises when the head is silenced."
)
CAUTION = (
    "A clear pattern is no proof of use: silence the head (what=('ablation',)) and see whether the loss moves. Heads "
    "may stand in for each other, so single ablations understate."
)
KINDS = {
    "attention": ("time", "time"),
    "cross_attention": ("target", "source"),
    "self_attention": ("target", "target"),
    "encoder_attention": ("source", "source"),
}


def heads(
    trace: Trace, *, of: str = "", layer: int | None = None, head: int | None = None
) -> Thumbnails | Heatmap:
    """All heads, or one (``layer`` and ``head`` from 1) in full. ``of`` picks a kind of attention."""
    name = _kind(trace, of)
    values = np.asarray(trace.arrays[name].values, np.float32)
    layers, count = values.shape[:2]
    for what, asked, most in (("layer", layer, layers), ("head", head, count)):
        if asked is not None and not 1 <= asked <= most:
            raise AnaphoraError(f"This model has {what}s 1 to {most}, not {asked}.")
    if layer is not None and head is not None:
        return _one(trace, name, values[layer - 1, head - 1], layer, head)
    ablated = {
        (r["layer"], r["head"]): float(r["loss"])
        for r in trace.tables.get("ablation", [])
        if r.get("kind", "attention") == name
    }
    chosen = range(1, layers + 1) if layer is None else [layer]
    items = []
    for row in chosen:
        for column in range(1, count + 1):
            words = habit(values[row - 1, column - 1])
            if (row, column) in ablated:
                words += f", Δloss {ablated[row, column]:+.3f}"
            items.append(
                Thumbnail(f"{row}.{column}", words, values[row - 1, column - 1], f"layer={row}&head={column}")
            )
    subtitle = f"{name.replace('_', ' ')} · {layers} layers of {count} heads · {facts_line(trace)}"
    return Thumbnails(TITLE, subtitle, items, count, proof(trace), READING, CAUTION)


def measures(weights: NDArray[Any]) -> dict[str, float]:
    """Habits of one head ``(query, key)``: mean weight on the symbol before, itself, the next and the first,
    entropy in bits, and mean distance."""
    queries, keys = weights.shape
    places = np.arange(queries)[:, None] - np.arange(keys)[None]
    entropy = -(weights * np.log2(np.maximum(weights, 1e-12))).sum(1)
    return {
        "previous": float(weights[places == 1].sum() / max(queries - 1, 1)),
        "itself": float(weights[places == 0].sum() / max(queries, 1)),
        "next": float(weights[places == -1].sum() / max(queries - 1, 1)),
        "first": float(weights[:, 0].mean()) if keys else 0.0,
        "entropy": float(entropy.mean()) if queries else 0.0,
        "distance": float((weights * np.abs(places)).sum(1).mean()) if queries else 0.0,
    }


def habit(weights: NDArray[Any]) -> str:
    """The strongest habit where one stands out, else how spread the head looks: its entropy."""
    found = measures(weights)
    name = max(("previous", "itself", "next", "first"), key=lambda key: found[key])
    if found[name] >= 0.5:
        return f"{name} {100 * found[name]:.0f} %"
    return f"{found['entropy']:.1f} bits"


def _one(trace: Trace, name: str, values: NDArray[np.float32], layer: int, head: int) -> Heatmap:
    rows, columns = (trace.tokens[axis] for axis in KINDS[name])
    return Heatmap(
        title=f"Head {head} of layer {layer}",
        subtitle=f"{name.replace('_', ' ')} · {habit(values)}",
        values=values,
        rows=rows,
        columns=columns,
        row_title="looks",
        column_title="at",
        value_title="attention weight",
        notes=proof(trace),
        reading=READING,
        caution=CAUTION,
    )


def _kind(trace: Trace, of: str) -> str:
    if of and of not in KINDS:
        raise AnaphoraError(f"of must be one of {', '.join(KINDS)}, not {of!r}.")
    there = [name for name in KINDS if name in trace.arrays and "head" in trace.arrays[name].axes]
    if of and of not in there:
        raise AnaphoraError(
            f"This trace holds no {of}; it holds {', '.join(there) or 'no attention of heads'}."
        )
    if not there:
        raise AnaphoraError(
            "This trace holds no attention of heads: Transformers have them, though not every trace of one keeps them."
        )
    return of or there[0]
