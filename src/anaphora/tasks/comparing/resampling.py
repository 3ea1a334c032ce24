"""Intervals by the bootstrap, and a paired test by approximate randomisation, over sums of statistics.

Both draw examples (or groups of them), not runs: they say how far another test set of this kind could move a measure, not
how far another seed of training could.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Value = Callable[[Floats], Floats]
HELD = 1 << 22
"""Draws that are held in memory at a time."""
TIE = 1e-9
"""Differences that are nearer than this count as equal: sums in another order differ in their last bits."""


def grouped(statistics: Floats, groups: NDArray[np.int64] | None) -> Floats:
    """The sums (groups, k) of statistics (examples, k) by group, which are then drawn instead of examples."""
    if groups is None:
        return statistics
    names, place = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(names), statistics.shape[1]))
    np.add.at(sums, place, statistics)
    return sums


def bootstrap(runs: Sequence[Floats], value: Value, *, samples: int, seed: int) -> Floats:
    """The measure (runs, samples) of every run on resampled examples; ``runs`` has statistics (examples, k) of each.

    Every sample draws as many examples as there are, with replacement, and the same ones for every run (Efron 1979).
    """
    found = np.empty((len(runs), samples))
    for part, counts in _draws(len(runs[0]), samples, np.random.default_rng(seed)):
        for row, statistics in enumerate(runs):
            found[row, part] = value(counts @ statistics)
    return found


def interval(values: Floats, level: float) -> tuple[float, float]:
    """The middle ``level`` of resampled values."""
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return float(low), float(high)


def p_value(a: Floats, b: Floats, value: Value, *, samples: int, seed: int) -> float:
    """How often a difference as large as that of runs ``a`` and ``b`` (examples, k) comes about when it is left to chance
    which of both gave which output: two-sided, paired (Noreen 1989; Riezler & Maxwell 2005).

    Where all exchanges are few they are all made, and p is exact; otherwise p = (as large + 1) / (samples + 1).
    """
    gaps = (b - a)[(a != b).any(axis=1)]  # exchanging equal outputs changes nothing
    total_a, total_b = a.sum(0), b.sum(0)
    observed = abs(float(value(total_a) - value(total_b)))
    exact = 2 ** min(len(gaps), 62) <= samples
    large = tried = 0
    for swaps in _all_swaps(len(gaps)) if exact else _swaps(len(gaps), samples, np.random.default_rng(seed)):
        moved = swaps @ gaps  # (some, k)
        differences = np.abs(value(total_a + moved) - value(total_b - moved))
        large += int((differences >= observed - TIE * max(1.0, observed)).sum())
        tried += len(swaps)
    return large / tried if exact else (large + 1) / (tried + 1)


def _draws(
    count: int, samples: int, random: np.random.Generator
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """How often each example is drawn, (some, examples), for some samples at a time."""
    together = max(1, HELD // max(1, count))
    for begin in range(0, samples, together):
        rows = min(together, samples - begin)
        drawn = random.integers(count, size=(rows, count)) + count * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)
        yield slice(begin, begin + rows), counts.astype(np.float64)


def _swaps(count: int, samples: int, random: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    together = max(1, HELD // max(1, count))
    for begin in range(0, samples, together):
        rows = min(together, samples - begin)
        yield random.integers(2, size=(rows, count)).astype(np.float64)


def _all_swaps(count: int) -> Iterator[NDArray[np.float64]]:
    yield np.array(list(itertools.product((0.0, 1.0), repeat=count))).reshape(2**count, count)
