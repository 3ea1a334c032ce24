"""Columns of a table that are no values: a count of the rows or the years, and the names of several series."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence

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


SURE = ("series", "unique_id", "series_id", "item_id", "ts_id")
"""Names of columns that say which series a row belongs to, wherever they are."""
_OFTEN = (
    "id shop store item sku product sensor station meter device customer account site plant location region country city state "
    "province district department branch category family name key ticker symbol machine line route household building"
)
_USUAL = frozenset(_OFTEN.split())
"""Names that such columns often have."""
FEWEST_REPEATS = 0.1
"""Where fewer rows than this share their time with another one, the rows of no series are mixed, but some stand there twice."""
STRAY = 0.05
"""So many rows may stand twice within one series, for which there is an error of its own."""


def often_names_series(name: str) -> bool:
    """Whether a column of this name often says which series a row belongs to."""
    plain = name.strip().lower().replace(" ", "_")
    return plain in SURE or plain in _USUAL or plain.endswith("_id") or plain.partition("_")[0] in _USUAL


def naming(
    columns: Mapping[str, Sequence[str]], times: Sequence[Hashable], levels: Sequence[str] = ()
) -> str | None:
    """The column that names the series of a row: of those that could, the first with which no time comes twice, those with a usual name, and the ``levels`` of an index, before others.

    None where the rows are of one series: most of their times come once, or no column takes those apart that come twice.
    """
    if not times:
        return next((name for name, cells in columns.items() if _sure(name) and _several(cells)), None)
    twice = len(times) - len(set(times))
    usual = [name for name in columns if often_names_series(name) or name in levels]
    usual.sort(key=lambda name: not _sure(name))
    for stray in (0.0, STRAY):
        for name in (*usual, *(one for one in columns if one not in usual and not stray)):
            cells = columns[name]
            if not _several(cells):
                continue
            left = len(times) - len(set(zip(cells, times, strict=True)))
            blocks = 1 + sum(a != b for a, b in itertools.pairwise(cells)) == len(set(cells))
            mixed = twice >= FEWEST_REPEATS * len(times) or (blocks and twice)
            if (left == 0 or left <= stray * len(times)) and (mixed or _sure(name)):
                return name
    return None


def _sure(name: str) -> bool:
    return name.strip().lower() in SURE


def _several(cells: Sequence[str]) -> bool:
    return 1 < len(set(cells)) < max(3, len(cells) / 2)


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
