"""Time series, whatever they come from: values by step and column, and where forecasting them may begin."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.numeric import LARGEST
from anaphora.errors import DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One recording: ``values`` (time, columns), NaN where missing.

    ``times`` are the texts of the time column, where there was one. Steps before ``begin`` are history: they are
    read, but not forecast.
    """

    name: str
    values: Floats
    times: tuple[str, ...] = ()
    begin: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def cut(self, begin: int, end: int) -> Series:
        """The steps up to ``end``, to be forecast from ``begin`` on."""
        return Series(self.name, self.values[:end], self.times[:end], begin)


@dataclass(frozen=True)
class SeriesData:
    """Some series with the same columns; ``facts`` say where they came from.

    ``targets`` and ``known`` are the columns to forecast and those known in advance, where the data name them
    themselves (an embedded corpus does).
    """

    columns: tuple[str, ...]
    series: tuple[Series, ...]
    facts: dict[str, Any]
    targets: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    time_name: str = ""
    series_name: str = ""

    def __post_init__(self) -> None:
        for one in self.series:
            large = np.argwhere(np.abs(one.values) > LARGEST)
            if len(large):
                row, place = (int(number) for number in large[0])
                of = f"series {one.name[:40]}, " if len(self.series) > 1 else ""
                raise DataError(
                    f"{self.place}: {of}row {row + 1}, column {self.columns[place][:40]}: {one.values[row, place]:g} is too large to "
                    "compute with; use a larger unit, or leave the cell empty."
                )

    def __len__(self) -> int:
        """Steps that may be forecast, in all series together."""
        return sum(len(one) - one.begin for one in self.series)

    def describe(self) -> dict[str, Any]:
        """What was read, as JSON; `anaphora.data.opening` takes it to open the same again."""
        digest = hashlib.sha256()
        digest.update(repr(self.columns).encode())
        for one in self.series:
            digest.update(repr((one.name, one.values.shape, one.begin, one.times)).encode())
            digest.update(np.ascontiguousarray(one.values, dtype="<f8").tobytes())
        shape = {"rows": len(self), "series": len(self.series), "columns": list(self.columns)}
        return {**self.facts, **shape, "sha256": digest.hexdigest()}

    def called(self, names: Sequence[str], *, trained: Sequence[str]) -> SeriesData:
        """Arrays from Python, which have no names, with ``names`` where they have as many columns; so has whatever a model that was
        trained on arrays is given, and other tables keep their names. ``trained`` are the columns of training; a `DataError` where an
        array has more of them: which are meant is not known."""
        count, most = len(self.columns), len(trained)
        nameless = "named" not in self.facts
        by_place = nameless or (unnamed(trained) and not set(names) <= set(self.columns))
        if self.facts["kind"] != "memory" or not by_place:
            return self
        if nameless and count > most:
            raise DataError(
                f"{self.place}: an array has {count} columns, and the model was trained with {most}; give those alone."
            )
        return SeriesData(tuple(names), self.series, self.facts) if count == len(names) else self

    def only(self, columns: Sequence[str], *, optional: Sequence[str] = ()) -> SeriesData:
        """The same with exactly ``columns``, in that order; those that are ``optional`` may be missing altogether."""
        if tuple(columns) == self.columns:
            return self
        places = []
        for name in columns:
            if name not in self.columns and name not in optional:
                raise DataError(
                    f"{self.place}: has no column {name}, which the model was trained with; it has "
                    f"{', '.join(self.columns[:20])}."
                )
            places.append(self.columns.index(name) if name in self.columns else -1)
        chosen = []
        for one in self.series:
            wider = np.concatenate([one.values, np.full((len(one), 1), np.nan)], axis=1)
            chosen.append(Series(one.name, wider[:, places], one.times, one.begin))
        return replace(self, columns=tuple(columns), series=tuple(chosen))

    @property
    def place(self) -> str:
        """What to call the data in a sentence."""
        facts = self.facts.get("of", self.facts)  # of what was held out, the whole
        kept = facts.get("kind") == "spilled"  # where it lies in the run says nothing to the user
        paths = (() if kept else facts.get("paths")) or [facts.get("name", "the series")]
        return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and others"


def numbered(count: int) -> tuple[str, ...]:
    """The names of the columns of an array: x1, x2, …"""
    return tuple(f"x{number}" for number in range(1, count + 1))


def unnamed(columns: Sequence[str]) -> bool:
    """Whether columns have the names that those of arrays get: x1, x2, … and y, y1, … for the targets of ``fit(X, y)``."""
    return all(re.fullmatch(r"x[1-9][0-9]*|y[0-9]*", name) for name in columns)
