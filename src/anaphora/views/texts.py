"""A map of whole texts: the user's own among those of the dev data."""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.panels import Panels
from anaphora.views.projector import nearest, unit
from anaphora.views.scatter import Point, Scatter
from anaphora.views.states import facts_line

TITLE = "Your texts on the model's map"
READING = (
    "Each dot is a whole text: an embedder's own vector, of another model the mean over the text of its last layer's states, on two "
    "principal axes (exact PCA). Your texts are named. Table: how near yours are to each other and to the nearest dev inputs, "
    "as cosines in the full space (of states after their mean is taken off)."
)
CAUTION = (
    "Two axes hold only the share of the variance that is named. A model that was not trained to make near what means the same may put "
    "texts together by their length or their last word."
)
MOST_OWN, NEAR = 24, 6


def texts(trace: Trace, *, x: int = 1, y: int = 2) -> Panels:
    """All texts on axes ``x`` and ``y`` (1 to 3), and how near the user's own are."""
    if not {x, y} <= {1, 2, 3} or x == y:
        raise AnaphoraError("x and y must be two different axes from 1 to 3.")
    names, own = trace.tokens["symbol"], int(trace.facts["own"])
    projection = trace.array("projection", "symbol", "rank")
    if projection.shape[1] < max(x, y):
        raise AnaphoraError(f"There are only {projection.shape[1]} axes for so few texts.")
    spread = trace.array("spread", "unit")
    first = len(names) - own
    points = [
        Point(float(p[x - 1]), float(p[y - 1]), names[i], int(i >= first), i >= first)
        for i, p in enumerate(projection)
    ]
    charts: list[Any] = [
        Scatter(
            "Map",
            f"{len(names)} texts, {own} of them yours · these two axes hold "
            f"{100 * float(spread[x - 1] + spread[y - 1]):.1f} % of the variance",
            f"axis {x} ({100 * float(spread[x - 1]):.1f} %)",
            f"axis {y} ({100 * float(spread[y - 1]):.1f} %)",
            points,
            ["dev inputs", "yours"],
            width=560.0,
            height=420.0,
        )
    ]
    if own:
        charts.append(_near(trace, first))
    notes = [] if own else ["type your own texts, one a line, to see where they fall"]
    return Panels(TITLE, facts_line(trace), charts, notes, READING, CAUTION)


def _near(trace: Trace, first: int) -> Heatmap:
    names = trace.tokens["symbol"]
    vectors = np.asarray(trace.array("embeddings", "symbol", "unit"), np.float64)
    if trace.facts.get("of") == "states":
        vectors = vectors - vectors.mean(0)
    vectors = unit(vectors)
    own = range(first, min(len(names), first + MOST_OWN))
    others: list[int] = []
    for i in own:
        for j, _ in nearest(vectors, vectors[i], set(range(first, len(names))), 2):
            if j not in others and len(others) < 2 * NEAR:
                others.append(j)
    columns = [*own, *others]
    return Heatmap(
        title="How near",
        subtitle="cosine of your texts (rows) with each other and with the nearest dev inputs",
        values=np.asarray(vectors[list(own)] @ vectors[columns].T, np.float32),
        rows=[names[i] for i in own],
        columns=[names[i] for i in columns],
        row_title="yours",
        column_title="text",
        value_title="cosine",
        low=-1.0,
        high=1.0,
        signed=True,
    )
