"""Columns of a table that are no values: a count of the rows or the years, and the names of several series."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from anaphora.data.numeric import is_number
from anaphora.data.series_times import disorder

COUNTS = (
    "year",
    "yr",
    "t",
    "step",
    "index",
    "id",
    "no",
    "n",
    "row",
    "rownames",
    "obs",
    "period",
    "day",
    "week",
    "month",
    "quarter",
)
"""What a first column that counts steps is called."""
PARTS = ("year", "month", "quarter", "week", "day", "hour")
"""Parts of a time, which must be joined to be one."""
_LEAST = 5
"""Rows from which on a count is no chance."""


def counting(name: str, cells: Sequence[str], owners: Sequence[str]) -> bool:
    """Whether a column counts steps: it has the name of a count, and each cell is by the same more than the one before, within each of ``owners``.

    >>> counting("year", ["1871", "1872", "1873", "1874", "1875"], [])
    True
    """
    if (
        name.strip().lower() not in COUNTS
        or len(cells) < _LEAST
        or not all(is_number(cell) for cell in cells)
    ):
        return False
    numbers = [float(cell) for cell in cells]
    same = [a == b for a, b in itertools.pairwise(owners)] if owners else [True] * (len(cells) - 1)
    gaps = [b - a for (a, b), one in zip(itertools.pairwise(numbers), same, strict=True) if one]
    return bool(gaps) and gaps[0] > 0 and all(abs(gap - gaps[0]) <= 1e-6 * gaps[0] for gap in gaps)


def owning(columns: Mapping[str, Sequence[str]], times: Sequence[str]) -> str | None:
    """The first column of texts within each value of which the times are in order, where all together are not: it names the series of a row.
    None where there is none."""
    found = disorder(times)
    if found is None or found[0] == "gap":
        return None
    for name, cells in columns.items():
        rows: dict[str, list[str]] = {}
        for cell, time in zip(cells, times, strict=True):
            rows.setdefault(cell, []).append(time)
        orders = [disorder(own) for own in rows.values()]
        if 1 < len(rows) < len(times) / 2 and all(order is None or order[0] == "gap" for order in orders):
            return name
    return None
