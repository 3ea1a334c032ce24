"""Linear recurrences: the decay of every channel, and the weights with which each step sums up those before it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.recurrence import FOREVER, recurrent_layers
from anaphora.probe.trace import Layer, Trace
from anaphora.views import heads, layers
from anaphora.views.heads import habit
from anaphora.views.heatmap import Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.scatter import Point, Scatter
from anaphora.views.states import facts_line, proof
from anaphora.views.thumbnails import Thumbnail, Thumbnails

DECAY_TITLE = "Decay spectrum"
DECAY_READING = (
    "First, each dot is one channel of the state: the factor λ it is multiplied by at every step, mean over the text, within "
    "the unit circle. At 1 on the right it remembers for ever, in the middle it forgets at once; left of the middle it changes "
    "its sign at every step, above and below it turns. Then, how many steps it takes until 1/e is left, sorted."
)
DECAY_CAUTION = (
    "Where the factor depends on the input, this is its mean over one text. Many channels with long memory are no proof that "
    "they hold something: see what is written into them."
)
WEIGHTS_TITLE = "Effective attention"
WEIGHTS_READING = (
    "A linear recurrence, unrolled: row t shows how much of each earlier step is in what the layer reads at step t, as shares "
    "of a row. Layers with a matrix as state have a square per head; of a cell and of Mamba it is the size of what each step "
    "added to the state and is still there."
)
BESIDE = "Softmax attention of the same model stands beside it."
WEIGHTS_CAUTION = (
    "Weights of a recurrence may be negative and need not sum to one: sizes are shown. Gates and norms behind the state "
    "decide what becomes of it."
)
CIRCLE = 48  # straight pieces


def spectrum(trace: Trace, *, layer: int | None = None, direction: str = "") -> Panels:
    """Eigenvalues on the unit disc and memory times, for every layer or one (from 1)."""
    charts: list[Any] = []
    notes = []
    for name, one in _layers(trace, "spectrum", layer, direction):
        real, imaginary = trace.array(f"{name}_spectrum", "coordinate", "unit")
        memory = np.sort(trace.array(f"{name}_memory", "unit"))
        title = str(one).capitalize()
        points = [
            Point(float(x), float(y), f"channel {unit + 1}")
            for unit, (x, y) in enumerate(zip(real, imaginary, strict=True))
        ]
        charts.append(
            Scatter(
                f"{title}: eigenvalues",
                f"{len(points)} channels",
                "real part",
                "imaginary part",
                points,
                ["channel"],
                x_range=(-1.1, 1.1),
                y_range=(-1.1, 1.1),
                guides=_circle(),
                width=300.0,
                height=300.0,
            )
        )
        ranks = [float(rank) for rank in range(1, len(memory) + 1)]
        charts.append(
            Lines(
                f"{title}: memory",
                "steps until 1/e is left, channels in order",
                "channel",
                "steps",
                [Line("memory time", ranks, memory.tolist())],
                log=True,
            )
        )
        middle, longest = memory[len(memory) // 2], memory[-1]
        notes.append(f"{one}: median channel {_steps(middle)}, longest {_steps(longest)}")
    return Panels(
        DECAY_TITLE, facts_line(trace), charts, [*notes, *proof(trace)], DECAY_READING, DECAY_CAUTION
    )


def _steps(memory: float) -> str:
    return "for ever" if memory >= FOREVER else f"{memory:.3g} steps"


def weights(
    trace: Trace, *, layer: int | None = None, direction: str = "", head: int | None = None
) -> Thumbnails | Heatmap:
    """All layers and heads beside softmax attention, or one head of one layer (from 1) in full."""
    entries = _layers(trace, "weights", layer, direction)
    if layer is not None and head is not None:
        if len(entries) > 1:
            raise AnaphoraError(f"Layer {layer} reads both ways; name the direction, forward or backward.")
        ((name, one),) = entries
        values = _shares(trace.array(f"{name}_weights", "head", "query", "key"))
        if not 1 <= head <= len(values):
            raise AnaphoraError(f"Layer {layer} has heads 1 to {len(values)}, not {head}.")
        return _one(trace, f"{name}_weights", values[head - 1], f"Head {head} of {one}")
    items = []
    for name, one in entries:
        array = f"{name}_weights"
        for index, values in enumerate(_shares(trace.array(array, "head", "query", "key"))):
            items.append(_thumbnail(trace, array, f"{heads.short(one)}.{index + 1}", values))
    reading = WEIGHTS_READING
    if "attention" in trace.arrays and layer is None:
        reading += f" {BESIDE}"
        softmax = np.asarray(trace.arrays["attention"].values, np.float32)
        for one, of_layer in zip(trace.layers("attention"), softmax, strict=True):
            for index, values in enumerate(of_layer):
                name = f"softmax {heads.short(one)}.{index + 1}"
                items.append(_thumbnail(trace, "attention", name, values))
    across = min(len(items), 6)
    subtitle = f"{', '.join(str(one) for _, one in entries)} · {facts_line(trace)}"
    return Thumbnails(WEIGHTS_TITLE, subtitle, items, across, proof(trace), reading, WEIGHTS_CAUTION)


def _thumbnail(trace: Trace, array: str, name: str, values: NDArray[np.float32]) -> Thumbnail:
    sides = trace.names(array, "query"), trace.names(array, "key")
    return Thumbnail(name, habit(values), values, rows=sides[0], columns=sides[1])


def _shares(values: NDArray[Any]) -> NDArray[np.float32]:
    """|W| as shares of each row."""
    sizes = np.abs(values)
    total = sizes.sum(-1, keepdims=True)
    return np.asarray(sizes / np.where(total > 0, total, 1), np.float32)


def _one(trace: Trace, name: str, values: NDArray[np.float32], title: str) -> Heatmap:
    return Heatmap(
        title=title,
        subtitle=f"effective attention · {habit(values)}",
        values=values,
        rows=trace.names(name, "query"),
        columns=trace.names(name, "key"),
        row_title="reads",
        column_title="of",
        value_title="share of the row",
        notes=proof(trace),
        reading=WEIGHTS_READING,
        caution=WEIGHTS_CAUTION,
    )


def _layers(trace: Trace, what: str, layer: int | None, direction: str) -> list[tuple[str, Layer]]:
    """How the names of the arrays begin that hold ``what``, and what they are of: all layers, or one."""
    known = recurrent_layers(trace, what)
    each = [one for _, one in known]
    return [(known[index][0], one) for index, one in layers.chosen(each, layer, direction, every=True)]


def _circle() -> list[tuple[tuple[float, float], tuple[float, float]]]:
    places = [
        (math.cos(2 * math.pi * i / CIRCLE), math.sin(2 * math.pi * i / CIRCLE)) for i in range(CIRCLE + 1)
    ]
    return list(itertools.pairwise(places))
