"""State space: the path of a layer's states on their two main axes."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Layer, Trace
from anaphora.views import layers
from anaphora.views.panels import Panels
from anaphora.views.scatter import Point, Scatter
from anaphora.views.states import facts_line, proof

TITLE = "State space"
READING = (
    "Each dot is the state of a layer after the symbol beside it was read, on two principal axes of these states (exact PCA); the line "
    "joins them in the order of the text, which a backward direction reads from its end. States that meet again after the same kind of symbol may stand for the same memory."
)
CAUTION = (
    "Two axes hold only the share of the variance that is named: dots that touch may be far apart. Of a network that reads in both "
    "directions or attends to all places the order of the line is that of the text, not of a computation."
)
NAMED = 40


def trajectory(
    trace: Trace, *, side: str = "", layer: int | None = None, direction: str = "", x: int = 1, y: int = 2
) -> Panels:
    """States of one ``layer`` (by default the last) on the principal axes ``x`` and ``y``; of a layer that reads both ways a
    picture for each ``direction``, or for one."""
    name = layers.find(trace, "states", side)
    axis = layers.places_axis(trace, name)
    values, known = trace.array(name, "layer", axis, "unit"), trace.layers(name)
    charts: list[object] = [
        _path(
            np.asarray(values[index], np.float64), trace.names(name, axis), one, layers.of(one, known), x, y
        )
        for index, one in layers.chosen(known, layer, direction)
    ]
    return Panels(TITLE, facts_line(trace), charts, proof(trace), READING, CAUTION)


def _path(states: NDArray[np.float64], tokens: list[str], one: Layer, said: str, x: int, y: int) -> Scatter:
    """The path of the states ``(time, unit)`` in the order of the text."""
    centred = states - states.mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    most = max(2, int(min(len(sizes), 6)))
    if not {x, y} <= set(range(1, most + 1)) or x == y:
        raise AnaphoraError(f"x and y must be two different axes from 1 to {most}.")
    # the sign of an axis is arbitrary: make its largest entry positive, so that pictures do not flip
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])
    places = centred @ (axes * signs[:, None]).T  # (time, rank)
    spread = sizes**2 / max(float((sizes**2).sum()), 1e-300)
    if len(spread) < 2:  # a single symbol, or a single unit: the second axis is empty
        places, spread = np.pad(places, ((0, 0), (0, 1))), np.pad(spread, (0, 1))
    every = max(1, -(-len(tokens) // NAMED))
    points = [
        Point(float(places[t, x - 1]), float(places[t, y - 1]), f"{t + 1}: {tokens[t]}", 0, t % every == 0)
        for t in range(len(tokens))
    ]
    ends = [(float(p[x - 1]), float(p[y - 1])) for p in places]
    return Scatter(
        f"Path of the states, {one.direction}" if one.direction else "Path of the states",
        f"{said} · {states.shape[1]} units · these two axes hold "
        f"{100 * float(spread[x - 1] + spread[y - 1]):.1f} % of the variance",
        f"axis {x} ({100 * float(spread[x - 1]):.1f} %)",
        f"axis {y} ({100 * float(spread[y - 1]):.1f} %)",
        points,
        ["states"],
        guides=list(itertools.pairwise(ends)),
        width=560.0,
        height=420.0,
    )
