"""CTC: what each frame says, and where the target's probability flows through the lattice."""

from __future__ import annotations

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels

TITLE = "CTC posteriors and lattice"
READING = (
    "First: the probability of each symbol at each frame; the blank is usually high and symbols are short spikes. Then "
    "the lattice: rows are the target with blanks between, columns frames; a cell is the share of all paths' "
    "probability that passes there, so each column sums to 1."
)
CAUTION = "Spikes say when the model became sure, which is often later than when the sound began."
MOST_SYMBOLS, MOST_FRAMES = 8, 200


def ctc(trace: Trace, *, frames: int = MOST_FRAMES) -> Panels:
    """Lines of the most probable symbols over the frames, and the lattice of the target."""
    if not 1 <= frames <= 2000:
        raise AnaphoraError(f"frames must be from 1 to 2000, not {frames}.")
    posteriors = np.asarray(trace.array("posteriors", "time", "symbol"))[:frames]
    blank = int(trace.facts.get("blank", 0))
    order = [blank, *(int(s) for s in np.argsort(-posteriors.max(0), kind="stable") if int(s) != blank)]
    times = [float(t) for t in range(len(posteriors))]
    lines = [
        Line("blank" if s == blank else trace.tokens["symbol"][s], times, posteriors[:, s].tolist())
        for s in order[:MOST_SYMBOLS]
    ]
    charts: list[object] = [Lines("Posteriors", "", "frame", "probability", lines)]
    lattice = np.asarray(trace.array("lattice", "state", "time"), np.float32)[:, :frames]
    path = trace.array("best_path", "time")[:frames]
    charts.append(
        Heatmap(
            title="Lattice",
            subtitle="share of all paths' probability in each state · "
            + "best path: "
            + " ".join(trace.tokens["state"][int(s)] for s in path[:60])
            + (" …" if len(path) > 60 else ""),
            values=lattice,
            rows=[f"{i}: {name}" for i, name in enumerate(trace.tokens["state"])],
            columns=[str(t) for t in range(lattice.shape[1])],
            row_title="state",
            column_title="frame",
            value_title="share of probability",
        )
    )
    target = " ".join(str(name) for name in trace.facts.get("target", []))
    words = f"target {target} · log p = {float(trace.facts['log_likelihood']):.4f}, the sum over all paths"
    cut = trace.arrays["posteriors"].values.shape[0] - len(posteriors)
    notes = [f"the first {len(posteriors)} of {len(posteriors) + cut} frames"] if cut else []
    return Panels(TITLE, words, charts, notes, READING, CAUTION)
