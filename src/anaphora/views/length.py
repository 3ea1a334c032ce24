"""Quality against length: does a model lose the thread in long inputs (Bahdanau et al. 2015, figure 2)?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.curve import Curve, Series
from anaphora.views.picture import Picture

TITLE = "Quality against length"
READING = (
    "Each line is one model, each point the mean over the examples whose length falls into that range; the band "
    "holds the true mean with 95 % confidence. A line that falls to the right loses quality with length."
)
CAUTION = (
    "Long examples are often rarer in training and harder in themselves, so a fall need not be the model's memory; "
    "compare models on the same examples, and look at how many there are in each range."
)
Z95 = 1.959963984540054
RESAMPLES = 1000

Results = Mapping[str, Sequence[tuple[int, float]]]
"""For each model its examples as (length, value), value 0/1 or a share between 0 and 1."""


def quality_against_length(results: Results, *, metric: str = "exact match", bins: int = 8) -> Curve:
    """The lines of several models over at most `bins` ranges of length, the same for all of them."""
    lengths = [size for examples in results.values() for size, _ in examples]
    if not lengths or bins < 1:
        raise AnaphoraError("The view length needs at least one example and one range of lengths.")
    values = [value for examples in results.values() for _, value in examples]
    if not all(0 <= value <= 1 for value in values):
        raise AnaphoraError("The view length draws shares between 0 and 1; divide percentages by 100.")
    ranges = _ranges(min(lengths), max(lengths), bins)
    binary = set(values) <= {0, 1}
    lines = [_series(name, examples, ranges, binary) for name, examples in results.items()]
    band = "Wilson intervals" if binary else f"bootstrap intervals ({RESAMPLES} resamples)"
    counts = {len(examples) for examples in results.values()}
    size = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return Curve(
        title=TITLE,
        subtitle=f"{size} examples per model · bands: 95 % {band}",
        x_title="length",
        y_title=metric,
        places=[str(low) if low == high else f"{low}–{high}" for low, high in ranges],
        series=lines,
        reading=READING,
        caution=CAUTION,
    )


def picture(results: Results, *, metric: str = "exact match", bins: int = 8) -> Picture:
    """The same as a picture that can be shown and saved."""
    return Picture(quality_against_length(results, metric=metric, bins=bins), name="length")


def from_trace(trace: Trace, *, bins: int = 8) -> Curve:
    """From a table `examples` of records with model, length and value."""
    results: dict[str, list[tuple[int, float]]] = {}
    for row in trace.tables["examples"]:
        results.setdefault(str(row["model"]), []).append((int(row["length"]), float(row["value"])))
    return quality_against_length(results, metric=str(trace.facts.get("metric", "exact match")), bins=bins)


def wilson(mean: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927): sensible also at 0 and 1 and for few examples."""
    z2 = Z95**2
    middle = (mean + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 * math.sqrt(mean * (1 - mean) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean from resampling the examples, the same at every call."""
    sample = np.random.default_rng(0).choice(np.asarray(values, float), (RESAMPLES, len(values)))
    low, high = np.quantile(sample.mean(1), [0.025, 0.975])
    return float(low), float(high)


def _ranges(low: int, high: int, bins: int) -> list[tuple[int, int]]:
    """At most `bins` ranges of whole numbers, as equally wide as can be, that cover low … high."""
    bins = min(bins, high - low + 1)
    edges = [low + round(i * (high - low + 1) / bins) for i in range(bins + 1)]
    return [(start, following - 1) for start, following in itertools.pairwise(edges)]


def _series(
    name: str, examples: Sequence[tuple[int, float]], ranges: list[tuple[int, int]], binary: bool
) -> Series:
    line = Series(name, [], [], [], [])
    for low, high in ranges:
        inside = [float(value) for size, value in examples if low <= size <= high]
        line.counts.append(len(inside))
        mean = sum(inside) / len(inside) if inside else None
        line.y.append(mean)
        band: tuple[float | None, float | None] = (None, None)
        if mean is not None:
            band = wilson(mean, len(inside)) if binary else bootstrap(inside)
        line.low.append(band[0])
        line.high.append(band[1])
    return line
