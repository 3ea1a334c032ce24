"""Linear recurrences: the decay of every channel, and the weights with which each step sums up those before it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heads import habit
from anaphora.views.heatmap import Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.scatter import Point, Scatter
from anaphora.views.states import facts_line, proof
from anaphora.views.thumbnails import Thumbnail, Thumbnails

DECAY_TITLE = "Decay spectrum"
DECAY_READING = (
    "Left, each dot is one channel of the state: the factor λ it is multiplied by at every step, mean over the text, within "
    "the unit circle. At 1 on the right it remembers for ever, in the middle it forgets at once; left of the middle it changes "
    "its sign at every step, above and below it turns. Right, how many steps it takes until 1/e is left, sorted."
)
DECAY_CAUTION = (
    "Where the factor depends on the input, this is its mean over one text. Many channels with long memory are no proof that "
    "they hold something: see what is written into them."
)
WEIGHTS_TITLE = "Effective attention"
WEIGHTS_READING = (
    "A linear recurrence, unrolled: row t shows how much of each earlier step is in what the layer reads at step t, as shares "
    "of a row. Layers with a matrix as state have a square per head; of a cell and of Mamba it is the size of what each step "
    "added to the state and is still there. Softmax attention of the same model, where it has some, stands beside it."
)
WEIGHTS_CAUTION = (
    "Weights of a recurrence may be negative and need not sum to one: sizes are shown. Gates and norms behind the state "
    "decide what becomes of it."
)
CIRCLE = 48  # straight pieces


def spectrum(trace: Trace, *, layer: int | None = None) -> Panels:
    """Eigenvalues on the unit disc and memory times, for every layer or one (from 1)."""
    charts: list[Any] = []
    notes = []
    for number in _layers(trace, "spectrum", layer):
        real, imaginary = trace.array(f"layer{number}_spectrum", "coordinate", "unit")
        memory = np.sort(trace.array(f"layer{number}_memory", "unit"))
        points = [
            Point(float(x), float(y), f"channel {unit + 1}")
            for unit, (x, y) in enumerate(zip(real, imaginary, strict=True))
        ]
        charts.append(
            Scatter(
                f"Layer {number}: eigenvalues",
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
                f"Layer {number}: memory",
                "steps until 1/e is left, channels in order",
                "channel",
                "steps",
                [Line("memory time", ranks, memory.tolist())],
                log=True,
            )
        )
        middle, longest = memory[len(memory) // 2], memory[-1]
        notes.append(f"layer {number}: median channel {middle:.3g} steps, longest {longest:.3g}")
    return Panels(
        DECAY_TITLE, facts_line(trace), charts, [*notes, *proof(trace)], DECAY_READING, DECAY_CAUTION
    )


def weights(trace: Trace, *, layer: int | None = None, head: int | None = None) -> Thumbnails | Heatmap:
    """All layers and heads beside softmax attention, or one head of one layer (from 1) in full."""
    numbers = _layers(trace, "weights", layer)
    if layer is not None and head is not None:
        values = _shares(trace.array(f"layer{layer}_weights", "head", "query", "key"))
        if not 1 <= head <= len(values):
            raise AnaphoraError(f"Layer {layer} has heads 1 to {len(values)}, not {head}.")
        return _one(trace, values[head - 1], f"Head {head} of layer {layer}")
    items = []
    for number in numbers:
        for index, values in enumerate(
            _shares(trace.array(f"layer{number}_weights", "head", "query", "key"))
        ):
            items.append(Thumbnail(f"{number}.{index + 1}", habit(values), values))
    if "attention" in trace.arrays and layer is None:
        softmax = np.asarray(trace.arrays["attention"].values, np.float32)
        for number, heads in enumerate(softmax, start=1):
            for index, values in enumerate(heads):
                items.append(Thumbnail(f"softmax {number}.{index + 1}", habit(values), values))
    across = min(len(items), 6)
    subtitle = f"recurrent layers {', '.join(map(str, numbers))} · {facts_line(trace)}"
    return Thumbnails(WEIGHTS_TITLE, subtitle, items, across, proof(trace), WEIGHTS_READING, WEIGHTS_CAUTION)


def _shares(values: NDArray[Any]) -> NDArray[np.float32]:
    """|W| as shares of each row."""
    sizes = np.abs(values)
    total = sizes.sum(-1, keepdims=True)
    return np.asarray(sizes / np.where(total > 0, total, 1), np.float32)


def _one(trace: Trace, values: NDArray[np.float32], title: str) -> Heatmap:
    return Heatmap(
        title=title,
        subtitle=f"effective attention · {habit(values)}",
        values=values,
        rows=trace.tokens["time"],
        columns=trace.tokens["time"],
        row_title="reads",
        column_title="of",
        value_title="share of the row",
        notes=proof(trace),
        reading=WEIGHTS_READING,
        caution=WEIGHTS_CAUTION,
    )


def _layers(trace: Trace, what: str, layer: int | None) -> list[int]:
    """The numbers of the recurrent layers that have this array, or ``layer`` alone."""
    names = [name for name in trace.arrays if name.startswith("layer") and name.endswith(f"_{what}")]
    numbers = sorted(int(name.removeprefix("layer").removesuffix(f"_{what}")) for name in names)
    if layer is None:
        return numbers
    if layer not in numbers:
        said = ", ".join(map(str, numbers))
        raise AnaphoraError(f"This model has recurrent layers {said}, not {layer}.")
    return [layer]


def _circle() -> list[tuple[tuple[float, float], tuple[float, float]]]:
    places = [
        (math.cos(2 * math.pi * i / CIRCLE), math.sin(2 * math.pi * i / CIRCLE)) for i in range(CIRCLE + 1)
    ]
    return list(itertools.pairwise(places))
