"""What a model did with each example, as sums that every measure follows from: what resampling needs."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import SettingsError

Floats = NDArray[np.float64]
WARMING = 32
X = TypeVar("X")
Y = TypeVar("Y")


@dataclass(frozen=True)
class Measure:
    """A measure that follows from sums over examples: ``value(Σ statistics)``.

    ``each()`` gives the statistics (examples, k), which only resampling needs, and ``value`` takes sums (…, k) to measures
    (…). ``sums`` (k,) are those of all examples. ``basis`` says what is counted (symbols of a tokenizer, units of a scale):
    measures with different bases cannot be compared.
    """

    name: str
    each: Callable[[], Floats]
    value: Callable[[Floats], Floats]
    more_is_better: bool = True
    basis: str = ""
    sums: Floats | None = None

    @property
    def statistics(self) -> Floats:
        """What is counted of each example, (examples, k)."""
        return self.each()

    def total(self) -> Floats:
        """Return the sums over all examples, (k,)."""
        if self.sums is not None:
            return self.sums
        # column by column, which numpy adds up more exactly than rows
        return np.array([np.ascontiguousarray(one).sum() for one in self.statistics.T])

    def of_all(self) -> float:
        """Return the measure of all examples together."""
        return float(self.value(self.total()))

    def only(self, chosen: Sequence[int]) -> Measure:
        """Return the measure of some of the examples."""
        statistics = self.statistics[chosen]
        return replace(self, each=lambda: statistics, sums=None)


def counted(
    name: str,
    statistics: Floats,
    value: Callable[[Floats], Floats],
    more_is_better: bool = True,
    basis: str = "",
    sums: Floats | None = None,
) -> Measure:
    """Return the measure of statistics (examples, k) that are there already."""
    return Measure(name, lambda: statistics, value, more_is_better, basis, sums)


@dataclass(frozen=True)
class Measured:
    """How good answers are: ``measures``, and the ``report``, which has their values and what cannot be resampled beside
    them, such as tables by class, in the order in which it is read."""

    measures: Sequence[Measure]
    report: Mapping[str, Any]

    def numbers(self) -> dict[str, float]:
        """Return the measures of the report, which training notes at each evaluation."""
        return {key: value for key, value in self.report.items() if isinstance(value, float)}


def values(measures: Sequence[Measure]) -> dict[str, float]:
    """Return the value of each measure by its name."""
    return {one.name: one.of_all() for one in measures}


@dataclass(frozen=True)
class Judged:
    """Each example as it is shown, what was wanted and given, and how wrong that was (``losses``, 0 is right).

    ``groups`` (examples,) numbers examples that depend on each other (questions about one picture, neighbouring
    windows of a series) and are therefore drawn together. ``seconds`` is the time of predicting alone.
    """

    inputs: Sequence[str]
    references: Sequence[str]
    outputs: Sequence[str]
    losses: Floats
    measures: Sequence[Measure]
    seconds: float
    groups: NDArray[np.int64] | None = None
    notes: Sequence[str] = ()


SHARES = (
    *("accuracy", "precision", "recall", "f1", "macro_f1", "micro_f1", "exact_match", "wer", "cer", "mrr"),
    *("majority", "guess", "chance_at_1", "attention_on_object", "attention_by_chance"),
    *("recall_at_*", "coverage_*"),
)
"""The measures that are shares: in percent in Python, in JSON and in text alike. The others have the unit of what they measure,
or, as BLEU and chrF, a scale of their own."""


def unit_of(measure: str) -> str:
    """Return ``%`` for a measure that is a share, nothing for another one.

    >>> from anaphora.kinds.measures.judged import unit_of
    >>> unit_of("recall_at_5"), unit_of("mse")
    ('%', '')
    """
    return "%" if any(fnmatchcase(measure, share) for share in SHARES) else ""


def smoothed(values: Sequence[float]) -> list[float]:
    """Each value averaged with its neighbours, so that a single lucky one is not taken for the best.

    >>> smoothed([0.0, 3.0, 0.0, 3.0])
    [1.5, 1.0, 2.0, 1.5]
    """
    return [fmean(values[max(0, i - 1) : i + 2]) for i in range(len(values))]


def timed(work: Callable[[Sequence[X]], Y], inputs: Sequence[X]) -> tuple[Y, float]:
    """``work(inputs)`` and its seconds, after a few inputs that pay for what only the first calls cost."""
    if len(inputs):
        work(inputs[:WARMING])
    begun = time.perf_counter()
    found = work(inputs)
    return found, time.perf_counter() - begun


def no_options(model: Any, options: Mapping[str, Any]) -> None:
    """An error where options are given to a model that takes none when it is measured."""
    for key, value in options.items():
        if value is not None:
            raise SettingsError(
                [f"{key} has no effect on the measures of a {type(model).__name__}; leave it out."]
            )


def digest(*facts: Any) -> str:
    """A short name for what a measure counts in."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def columns(*parts: Any) -> Floats:
    """Statistics (examples, k) of k lists of numbers."""
    return np.stack([np.asarray(part, dtype=np.float64) for part in parts], axis=1)


def share(sums: Floats) -> Floats:
    """Return 100 · (part / whole) of sums (…, 2), in percent; 0 where there is nothing."""
    return 100.0 * mean(sums)


def percent(sums: Floats) -> Floats:
    """Return `share`, with its last bit as earlier versions wrote it of tags and texts: (100 · part) / whole."""
    return mean(sums * np.array([100.0, 1.0]))


def mean(sums: Floats) -> Floats:
    """Return total / count of sums (…, 2); 0 where there is nothing."""
    found: Floats = sums[..., 0] / np.where(sums[..., 1] == 0, 1.0, sums[..., 1])
    return found


def f1(sums: Floats) -> Floats:
    """100 · 2·right / (given + wanted) of sums (…, 3), in percent; 0 where there is nothing."""
    both = sums[..., 1] + sums[..., 2]
    found: Floats = 200.0 * sums[..., 0] / np.where(both == 0, 1.0, both)
    return found


def share_right(
    name: str,
    right: Sequence[bool] | NDArray[Any],
    basis: str = "",
    value: Callable[[Floats], Floats] = share,
) -> Measure:
    """Return the share of examples that are right, in percent."""
    return counted(name, columns(right, np.ones(len(right))), value, basis=basis)
