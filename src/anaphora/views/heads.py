"""The head browser: every attention head at once, what kind each is, and what happens without it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Layer, Trace
from anaphora.views import layers
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
KINDS = ("attention", "cross_attention", "self_attention", "encoder_attention")


def heads(
    trace: Trace, *, of: str = "", layer: int | None = None, direction: str = "", head: int | None = None
) -> Thumbnails | Heatmap:
    """All heads, or one (``layer`` and ``head`` from 1) in full. ``of`` picks a kind of attention."""
    name = _kind(trace, of)
    values = np.asarray(trace.arrays[name].values, np.float32)
    count, known = values.shape[1], trace.layers(name)
    if head is not None and not 1 <= head <= count:
        raise AnaphoraError(f"This model has heads 1 to {count}, not {head}.")
    entries = layers.chosen(known, layer, direction, every=True)
    if layer is not None and head is not None:
        if len(entries) > 1:
            raise AnaphoraError(f"Layer {layer} reads both ways; name the direction, forward or backward.")
        return _one(trace, name, values[entries[0][0], head - 1], entries[0][1], head)
    ablated = {
        (r["layer"], r["head"]): float(r["loss"])
        for r in trace.tables.get("ablation", [])
        if r.get("kind", "attention") == name
    }
    rows, columns = _sides(trace, name)
    items = []
    for index, one in entries:
        for column in range(count):
            words = habit(values[index, column], apart=name == "cross_attention")
            if (index + 1, column + 1) in ablated:  # an ablation counts layers as they come
                words += f", Δloss {ablated[index + 1, column + 1]:+.3f}"
            opens = f"layer={one.number}&head={column + 1}" + (
                f"&direction={one.direction}" * bool(one.direction)
            )
            items.append(
                Thumbnail(f"{short(one)}.{column + 1}", words, values[index, column], opens, rows, columns)
            )
    subtitle = f"{name.replace('_', ' ')} · {len(known)} layers of {count} heads · {facts_line(trace)}"
    return Thumbnails(TITLE, subtitle, items, count, proof(trace), READING, CAUTION)


def short(one: Layer) -> str:
    """``2``, or ``2 backward``."""
    return f"{one.number} {one.direction}".strip()


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


def habit(weights: NDArray[Any], *, apart: bool = False) -> str:
    """The strongest habit where one stands out, else how spread the head looks: its entropy. ``apart``: rows and columns are
    places of two sequences, so that a row's own column is no place of its own but the one with its number."""
    found = measures(weights)
    name = max(("previous", "itself", "next", "first"), key=lambda key: found[key])
    said = {"previous": "one place before", "itself": "same place", "next": "one place on"} if apart else {}
    if found[name] >= 0.5:
        return f"{said.get(name, name)} {100 * found[name]:.0f} %"
    return f"{found['entropy']:.1f} bits"


def _one(trace: Trace, name: str, values: NDArray[np.float32], one: Layer, head: int) -> Heatmap:
    rows, columns = _sides(trace, name)
    return Heatmap(
        title=f"Head {head} of {one}",
        subtitle=f"{name.replace('_', ' ')} · {habit(values, apart=name == 'cross_attention')}",
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


def _sides(trace: Trace, name: str) -> tuple[list[str], list[str]]:
    """What looks and what is looked at: of attention to the source the symbols that are written, else those that are read."""
    looks, at = trace.arrays[name].axes[-2:]
    return trace.names(name, looks), trace.names(name, at)


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
