"""CTC prefix search, frame by frame: which beginnings of the output are kept, and how their paths end."""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.search.ctc._prefixes import Prefix, ctc_prefixes
from anaphora.views.bars import Bars
from anaphora.views.heatmap import Heatmap
from anaphora.views.panels import Panels
from anaphora.views.states import facts_line, proof

TITLE = "Prefix search"
READING = (
    "Bars: the prefixes that are kept after the chosen frame, with the probability of their paths that end in a blank and of those that end "
    "in their last symbol; only the first kind lets the same symbol come again. Map: each prefix's share of what the beam holds, over the frames, "
    "so that one can see where it takes over from the one it grew out of."
)
CAUTION = (
    "This is the search without a lexicon and without a language model. A narrow beam drops paths, so its probabilities are a little "
    "low: a width that never drops one makes them exact."
)
SHOWN, WIDEST, MOST_FRAMES = 12, 100, 200


def prefixes(trace: Trace, *, frame: int | None = None, width: int = 8) -> Panels:
    """The search with a beam of ``width`` prefixes; ``frame`` (from 1; by default the last) is shown in full."""
    if not 1 <= width <= WIDEST:
        raise AnaphoraError(f"width must be from 1 to {WIDEST}, not {width}.")
    posteriors = np.asarray(trace.array("posteriors", "time", "symbol"), np.float64)
    if frame is not None and not 1 <= frame <= len(posteriors):
        raise AnaphoraError(f"There are frames 1 to {len(posteriors)}, not {frame}.")
    names, blank = trace.tokens["symbol"], int(trace.facts.get("blank", 0))
    with np.errstate(divide="ignore"):
        _, searched = ctc_prefixes(np.log(posteriors), blank=blank, width=width)
    frames = [frame.kept for frame in searched]
    at = len(frames) - 1 if frame is None else frame - 1

    def spelled(prefix: tuple[int, ...]) -> str:
        return "".join(names[s] for s in prefix) or "(nothing yet)"

    kept = frames[at][:SHOWN]
    before = {one.labels for one in frames[at - 1]} if at else {()}
    merged = sum(one.grown and one.labels in before for one in frames[at])
    bars = Bars(
        f"After frame {at + 1} of {len(frames)}",
        f"the {len(kept)} best of {len(frames[at])} prefixes · {merged} of them have paths from more than one prefix of the frame before",
        [spelled(one.labels) for one in kept],
        {
            "ends in a blank": [float(np.exp(one.blank)) for one in kept],
            "ends in its last symbol": [float(np.exp(one.label)) for one in kept],
        },
    )
    charts: list[Any] = [bars, _map(frames, spelled)]
    best = frames[-1][0]
    notes = [f"at the end: {spelled(best.labels)}, log p = {best.total:.4f}"]
    return Panels(TITLE, facts_line(trace), charts, [*notes, *proof(trace)], READING, CAUTION)


def _map(frames: list[list[Prefix]], spelled: Any) -> Heatmap:
    """p of those prefixes that were ever the best, and of the best at the end, over the frames."""
    leaders = dict.fromkeys(kept[0].labels for kept in frames if kept)
    shown = [*leaders, *(one.labels for one in frames[-1] if one.labels not in leaders)][: 2 * SHOWN]
    first = max(0, len(frames) - MOST_FRAMES)
    values = np.zeros((len(shown), len(frames) - first), np.float32)
    rows = {prefix: row for row, prefix in enumerate(shown)}
    for t, kept in enumerate(frames[first:]):
        all_kept = np.logaddexp.reduce([one.total for one in kept])
        for one in kept:
            if one.labels in rows:
                values[rows[one.labels], t] = np.exp(one.total - all_kept)
    return Heatmap(
        title="Prefixes over time",
        subtitle="those that led at some frame, in the order in which they did, then the others at the end",
        values=values,
        rows=[spelled(prefix) for prefix in shown],
        columns=[str(t + 1) for t in range(first, len(frames))],
        row_title="prefix",
        column_title="frame",
        value_title="share of the beam's probability",
    )
