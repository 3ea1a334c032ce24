"""The rows of a table as series: whose each row is, in which order they stand, and which steps have no row."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anaphora.data.series import Series
from anaphora.data.series_calendar import unfolded
from anaphora.data.series_times import (
    AmbiguousDatesError,
    Times,
    disorder,
    in_course,
    read_times,
    strange,
    written,
)
from anaphora.errors import DataError


@dataclass
class Arranger:
    """Puts rows into series, each in the order of its times, with an empty row for each step that has none.

    where: what to call the table. column: that of the times. form: in which the times of training were written, where day and month may be either.
    """

    where: str
    column: str
    form: str | None = None
    _sorted: list[str] = field(default_factory=list)
    _filled: list[tuple[str, str, int]] = field(default_factory=list)

    def read(self, texts: Sequence[str], numbers: Sequence[int]) -> Times | None:
        """The times that cells hold; None where they are no times, or are of several forms. ``numbers`` are those of the rows."""
        odd = strange(texts)
        if odd is not None and odd[0] == "impossible":
            raise DataError(
                f"{self.where}: {self.column} is {_short(odd[2])!r} in step {odd[1] + 1}, which is no date or time; correct it."
            )
        try:
            found = read_times(texts, self.form)
        except AmbiguousDatesError as error:
            raise DataError(f"{self.where}: {self.column}: {error}") from None
        if found is None:
            filled = [text for text in texts if text.strip()]
            if len(filled) < len(texts) and filled and read_times(filled, self.form) is not None:
                empty = next(number for number, text in zip(numbers, texts, strict=True) if not text.strip())
                raise DataError(
                    f"{self.where}: {self.column} is empty in row {empty}; give every row its time."
                )
        return found

    def series(
        self,
        name: str,
        values: np.ndarray[Any, Any],
        texts: Sequence[str],
        times: Times | None,
        numbers: Sequence[int],
        of: str,
    ) -> Series:
        """One series of rows with these values, times and numbers; ``of`` is said before what is wrong with one of several."""
        self._tell_strange(texts, of)
        if times is None:
            return Series(name, values, tuple(texts))
        order = _order(times.stamps)
        if order is not None:
            self._sorted.append(name)
            values, texts = values[order], [texts[i] for i in order]
            numbers, times = [numbers[i] for i in order], Times(times.form, [times.stamps[i] for i in order])
        self._check_twice(texts, times, numbers, of)
        course = in_course(times.stamps)
        if course is None:
            self._tell_gap(texts, of)
            return Series(name, values, tuple(texts))
        if len(course.steps) == len(texts):
            return Series(name, values, tuple(texts))
        wide = np.full((len(course.steps), values.shape[1]), np.nan)
        wide[list(course.places)] = values
        rows = {place: row for row, place in enumerate(course.places)}
        stamps, last, first = list[str](), 0, ""
        for place, step in enumerate(course.steps):
            last = rows.get(place, last)
            stamps.append(
                texts[last]
                if place in rows
                else written(
                    _beside(step, times.stamps[last], course.steps[course.places[last]]), times.form, texts
                )
            )
            first = first or (stamps[-1] if place not in rows else "")
        self._filled.append((name, first, len(stamps) - len(texts)))
        return Series(name, wide, tuple(stamps))

    def all_series(
        self,
        grid: np.ndarray[Any, Any],
        texts: Sequence[str],
        times: Times | None,
        owners: Mapping[str, Sequence[int]],
        numbers: Sequence[int],
        *,
        several: bool,
    ) -> list[Series]:
        """The series of each of ``owners``, whose rows of ``grid`` are given, with these times and numbers."""
        found = []
        for owner, chosen in owners.items():
            own = Times(times.form, [times.stamps[i] for i in chosen]) if times else None
            cells = [texts[i] for i in chosen] if texts else []
            rows = [numbers[i] for i in chosen] if own else []
            of = f"{owner[:40]}: " if several else ""
            found.append(self.series(owner, grid[list(chosen)], cells, own, rows, of))
        self.tell(len(found) > 1)
        return found

    def tell(self, several: bool) -> None:
        """Warn of the series that were sorted and of the steps that were filled in, once for all."""
        if self._sorted:
            names = f" (in {_listed(self._sorted)})" if several else ""
            warnings.warn(f"{self.where}: the rows are sorted by {self.column}{names}", stacklevel=6)
        if self._filled:
            name, first, _ = self._filled[0]
            count = sum(gaps for _, _, gaps in self._filled)
            steps = (
                "1 step has no row and is"
                if count == 1
                else f"{count:,} steps have no row and are".replace(",", " ")
            )
            of = f" of {_short(name)}" if several else ""
            warnings.warn(f"{self.where}: {steps} read as missing values, {first}{of} first", stacklevel=6)

    def _tell_strange(self, texts: Sequence[str], of: str) -> None:
        odd = strange(texts)
        if odd is None or odd[0] == "impossible":
            return
        kind, place, shown = odd
        if kind == "zone":
            advice = f"the times are of several time zones ({_short(shown)}); steps are counted in one, so convert them if days matter"
        else:
            advice = f"{self.column} is {_short(shown)!r} in step {place + 1}, written unlike the others, so the order is not checked; write all alike"
        warnings.warn(f"{self.where}: {of}{advice}", stacklevel=7)

    def _check_twice(self, texts: Sequence[str], times: Times, numbers: Sequence[int], of: str) -> None:
        stamps = _elapsed(times.stamps)
        for place in range(1, len(stamps)):
            if stamps[place] == stamps[place - 1]:
                raise DataError(
                    f"{self.where}: {of}{self.column} {_short(texts[place])} stands in rows {numbers[place - 1]} and {numbers[place]}; "
                    "remove one of them, or name the column of the series with --id (id_field)."
                )

    def _tell_gap(self, texts: Sequence[str], of: str) -> None:
        found = disorder(texts)
        if found is not None and found[0] == "gap":
            warnings.warn(
                f"{self.where}: {of}the times follow no rule, as between {found[1]} and {found[2]}; the rows are read as equal steps",
                stacklevel=7,
            )


def _beside(step: Any, stamp: Any, course: Any) -> Any:
    """``step`` by the clock that shows ``stamp`` where the step of the course is ``course``."""
    if isinstance(step, float):
        return step
    return stamp + (step - course)


def parted(owners: Sequence[str]) -> Mapping[str, list[int]]:
    """The rows of each owner, in the order in which they first appear."""
    rows: dict[str, list[int]] = {}
    for row, owner in enumerate(owners):
        rows.setdefault(owner, []).append(row)
    return rows


def keys_of(times: Times | None, texts: Sequence[str]) -> Sequence[Hashable]:
    """What tells whether two rows are of one time."""
    return texts if times is None else times.stamps


def _order(stamps: Sequence[Any]) -> list[int] | None:
    """The places of ``stamps`` in order; None where they stand in order, whatever clocks are changed between them."""
    if _never_falling(_elapsed(stamps)):
        return None
    backwards = list(range(len(stamps)))[::-1]
    if _never_falling(_elapsed([stamps[i] for i in backwards])):
        return backwards
    return sorted(range(len(stamps)), key=lambda i: stamps[i])


def _elapsed(stamps: Sequence[Any]) -> Sequence[Any]:
    """Stamps without a zone as time that passed."""
    return (
        stamps
        if not stamps or isinstance(stamps[0], float) or stamps[0].tzinfo is not None
        else unfolded(stamps)
    )


def _never_falling(stamps: Sequence[Any]) -> bool:
    return all(a <= b for a, b in itertools.pairwise(stamps))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(_short(name) for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _short(text: str) -> str:
    return " ".join(text.split())[:40]
