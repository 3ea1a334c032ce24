"""Series from a table: a column per variable, a row per step, oldest first."""

from __future__ import annotations

import math
import re
import sys
import warnings
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.files import TextFile
from anaphora.data.numeric import is_number
from anaphora.data.series import Series
from anaphora.data.series_roles import COUNTS, PARTS, counting, owning
from anaphora.data.series_times import NAMES, disorder, looks_like_time, strange
from anaphora.data.sources.formats import open_file
from anaphora.data.sources.formats.comma import CsvTable
from anaphora.data.sources.report import say
from anaphora.data.sources.roles import check_named
from anaphora.data.sources.sheet import Hints, Record, Sheet
from anaphora.errors import DataError
from anaphora.files import limits

MISSING = ("", "nan", "na", "n/a", "null", "none", "?", "-")
"""Cells that say that a value is missing, in any case of letters."""
INDEX = "index"
SERIES = "series"
"""A column called so says which series a row belongs to."""
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_FEW = 3
"""Rows from which a column without a single number is no column of numbers with mistakes but a text."""


def table_at(path: str | Path, spill: Path | None = None) -> Sheet:
    """The table in a file, whose first row is a header (``-``: CSV from standard input)."""
    if str(path) != "-":
        return open_file(path, spill, Hints(header=True))
    most = limits()
    raw = sys.stdin.buffer.read(most.bytes + 1)
    if reason := most.excess(len(raw)):
        raise DataError(f"standard input cannot be read: {reason}.")
    return CsvTable("standard input", spill, Hints(header=True), TextFile("standard input", spill, [raw]))


def read_table(
    table: Sheet, time_field: str | None = None, *, kept: Sequence[str] = (), whole: bool = False
) -> tuple[tuple[str, ...], list[Series], str, str]:
    """The columns, the series, and the names of the time and the series column of a table.

    Without a column ``series`` the table is one series, named like the file, unless its times are in order only within the rows that have the
    same text in some column, and it is not to be ``whole``. Columns of texts are left out, with a warning. A first column that counts is the
    time, unless it is among those that are ``kept``.
    """
    unnamed = _name_index(table)
    _check_header(table)
    begin = next((record for record in table.records() if record.problem is None), None)
    if begin is None:
        _report_first(table)
        raise DataError(f"{table.name}: has a header but no rows; give at least one step.")
    _check_first(table, begin)
    time, series = _special(table, begin, time_field, unnamed)
    if unnamed:
        read = "is read as the times" if time == unnamed else "is left out"
        say(f"{table.name}: the first column, which has no name, {read}")
    names = [name for name in table.names if name not in (time, series, unnamed)]
    texts = _texts(table, names)
    names = [name for name in names if name not in texts] if len(texts) < len(names) else names
    if time is None and len(names) > 1 and names[0] not in kept:
        time = _counted(table, names[0], [series] if series else [None, *texts])
        names = names[1:] if time else names
    if not names:
        raise DataError(f"{table.name}: has no column of numbers; give at least one besides the time.")
    values, cells, owners = (
        array("d"),
        {name: list[str]() for name in (time, *texts) if time and name},
        list[str](),
    )
    for record in table.records():
        _check(table, record)
        for name in names:
            values.append(_number(table, record, name))
        for name, column in cells.items():
            column.append(str(table.cell(record.values, name)))
        owners += [str(table.cell(record.values, series))] if series else []
    times = cells.pop(time) if time else []
    if not series and not whole and (series := owning(cells, times)):
        owners = cells[series]
        say(f"{table.name}: the rows of each {series} are read as a series")
    _warn_of(table.name, [name for name in texts if name not in names and name != series], names, time)
    grid = np.frombuffer(values, dtype=np.float64).reshape(-1, len(names))
    found = _parted(Path(table.name).name.partition(".")[0] or table.name, grid, times, owners)
    for one in found:
        where = f"{one.name}: " if len(found) > 1 else ""
        _check_times(table.name, one, where, time or "")
        if (empty := _empty_end(one)) and len(one) > empty:
            warnings.warn(
                f"{table.name}: {where}the last {empty} rows are empty, and read as steps that are missing; leave them out to forecast them",
                stacklevel=4,
            )
    return tuple(names), found, time or "", series or ""


def _counted(table: Sheet, first: str, owners: Sequence[str | None]) -> str | None:
    """``first``, the first column of numbers, where it counts the steps and so is their time: of all rows, or of those that have the same in one of
    the columns ``owners``."""
    if first.strip().lower() not in COUNTS:
        return None
    records = [record for record in table.records() if record.problem is None]
    cells = [_plain(table.cell(record.values, first)) for record in records]
    for owner in owners:
        same = [] if owner is None else [str(table.cell(record.values, owner)) for record in records]
        if counting(first, cells, same):
            say(f"{table.name}: the column {first}, which counts, is read as the times")
            return first
    return None


def _warn_of(name: str, texts: Sequence[str], names: Sequence[str], time: str | None) -> None:
    """Warn of columns of texts, which are left out, and of parts of times, which are not."""
    if texts:
        listed = ", ".join(" ".join(text.split())[:40] for text in texts[:6])
        warnings.warn(f"{name}: left out {listed}: texts, not numbers", stacklevel=5)
    parts = [column for column in names if column.lower() in PARTS]
    if len(parts) > 1 and not time:
        warnings.warn(
            f"{name}: {', '.join(parts)} are read as values; join them in one column of times, such as date with 2026-01",
            stacklevel=5,
        )


def _name_index(table: Sheet) -> str | None:
    """Give a first column without a name the name that it gets, if there is one: tables of pandas begin with their index."""
    if not table.names or table.names[0].strip():
        return None
    names = [INDEX, *(f"{INDEX}{number}" for number in range(2, len(table.names) + 2))]
    table.names[0] = next(name for name in names if name not in table.names)
    return table.names[0]


def _check_times(name: str, one: Series, where: str, column: str) -> None:
    """A `DataError` for a time that is none, and for a series with its newest step first, which would be forecast backwards; a
    warning where its times are of several forms or zones, are unsorted, repeat, or jump over steps."""
    odd = strange(one.times)
    if odd is not None:
        kind, place, shown = odd
        shown = " ".join(shown.split())[:40]
        if kind == "impossible":
            raise DataError(
                f"{name}: {where}{column} is {shown!r} in step {place + 1}, which is no date or time; correct it."
            )
        if kind == "zone":
            advice = f"the times are of several time zones ({shown}); steps are counted in one, so convert them if days matter"
        else:
            advice = f"{column} is {shown!r} in step {place + 1}, written unlike the others, so the order is not checked; write all alike"
        warnings.warn(f"{name}: {where}{advice}", stacklevel=5)
    found = disorder(one.times)
    if found is None:
        return
    what, before, after = found
    if what == "backwards":
        raise DataError(
            f"{name}: {where}the times run backwards, from {before} to {after}; sort the rows by {column}, the oldest first."
        )
    if what == "unsorted":
        advice = f"{before} comes before {after}; sort the rows by {column}, or name the column of different series `{SERIES}`"
    elif what == "repeated":
        advice = f"{before} stands on several rows, which are read one after another; name the column of different series `{SERIES}`"
    else:
        advice = f"nothing between {before} and {after}; the rows are read as if nothing were missing: add rows with empty cells"
    warnings.warn(f"{name}: {where}{advice}", stacklevel=5)


def _empty_end(one: Series) -> int:
    """Rows after the last one with a value."""
    seen = np.flatnonzero(~np.isnan(one.values).all(axis=1))
    return len(one) - 1 - int(seen[-1]) if len(seen) else len(one)


def _parted(
    name: str, grid: np.ndarray[Any, Any], times: Sequence[str], owners: Sequence[str]
) -> list[Series]:
    """One series, or one for each different owner in the order in which they first appear."""
    if not owners:
        return [Series(name, grid, tuple(times))]
    rows: dict[str, list[int]] = {}
    for row, owner in enumerate(owners):
        rows.setdefault(owner, []).append(row)
    return [
        Series(owner, grid[chosen], tuple(times[i] for i in chosen) if times else ())
        for owner, chosen in rows.items()
    ]


def _check_header(table: Sheet) -> None:
    names = table.names
    if not names:
        raise DataError(f"{table.name} is empty; give a header and at least one row.")
    for title in names:
        if not title.strip():
            raise DataError(f"{table.name}:1: a column has no name; give each column its own.")
        if names.count(title) > 1:
            raise DataError(
                f"{table.name}:1: the header names {' '.join(title.split())} twice; give each column its own name."
            )
    if all(is_number(title) or looks_like_time(title) for title in names):
        raise DataError(f"{table.name}:1: holds values where the names of the columns belong; add a header.")


def _check_first(table: Sheet, below: Record) -> None:
    """A `DataError` where a name is a date above dates, or a decimal above numbers: then the first row is a step. Whole numbers
    may be names, of sensors or years."""
    for title in table.names:
        value = _plain(table.cell(below.values, title))
        dated = looks_like_time(title) and not is_number(title) and looks_like_time(value)
        decimal = is_number(title) and not title.strip().isdecimal() and is_number(value)
        if dated or decimal:
            raise DataError(
                f"{table.name}:1: holds values where the names of the columns belong ({' '.join(title.split())}); add a header."
            )


def _report_first(table: Sheet) -> None:
    for record in table.records():
        _check(table, record)


def _check(table: Sheet, record: Record) -> None:
    if record.problem is None:
        return
    reason, detail = record.problem
    where = f"{table.name}:{record.number}"
    if reason == "wrong number of columns":
        found, _, wanted = detail.partition(" where ")
        raise DataError(f"{where}: has {found} columns where {wanted}; correct the row.")
    if reason == "broken quotes":
        raise DataError(f"{where}: cannot be read as CSV ({detail}); correct the row.")
    if reason == "broken UTF-8":
        raise DataError(f"{where}: this is not UTF-8 text ({detail}); save the file as UTF-8.")
    raise DataError(f"{where}: {reason} ({detail}); correct the row.")


def _special(
    table: Sheet, first: Record, time_field: str | None, unnamed: str | None
) -> tuple[str | None, str | None]:
    """The names of the time and of the series column; ``unnamed``: the name that a first column without one got."""
    plain = {title.lower(): title for title in reversed(table.names)}
    series = plain.get(SERIES)
    if time_field is not None:
        check_named(table.name, table.names, time_field)
        return time_field, series
    if named := [title for title in table.names if title.lower() in NAMES]:
        return named[0], series
    rest = [title for title in table.names if title != series]
    # before an index that counts rows, dates in the second column are the times
    dated = next(
        (title for title in rest[: 2 if unnamed else 1] if _is_time(table.cell(first.values, title))), None
    )
    return dated or unnamed, series


def _is_time(value: Any) -> bool:
    return value is not None and (hasattr(value, "isoformat") or looks_like_time(str(value)))


def _texts(table: Sheet, names: Sequence[str]) -> list[str]:
    """Columns of which no value is a number; only where there are rows enough to tell."""
    numbers: set[str] = set()
    rows = 0
    filled: dict[str, int] = dict.fromkeys(names, 0)
    for rows, record in enumerate(table.records(), start=1):
        if record.problem is None:
            for name in names:
                text = _plain(table.cell(record.values, name))
                filled[name] += text.lower() not in MISSING
                if is_number(text.replace(",", ".", 1)) and text.lower() not in MISSING:
                    numbers.add(name)
        if rows > 200 or len(numbers) == len(names):
            break
    return [name for name in names if name not in numbers and filled[name] >= _FEW]


def _plain(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _number(table: Sheet, record: Record, column: str) -> float:
    text = _plain(table.cell(record.values, column))
    if text.lower() in MISSING:
        return math.nan
    where = f"{table.name}:{record.number}"
    try:
        value = float(text)
    except ValueError:
        shown = text if len(text) <= 30 else f"{text[:27]}…"
        comma = " (write a decimal point, not a comma)" if is_number(text.replace(",", ".", 1)) else ""
        if _THOUSANDS.fullmatch(text):
            comma = " (write no comma between thousands, and a decimal point instead of a decimal comma)"
        raise DataError(
            f"{where}: column {column} holds {shown!r}, which is not a number{comma}; correct it, or leave "
            "the cell empty if the value is missing."
        ) from None
    if not math.isfinite(value):
        raise DataError(
            f"{where}: column {column} holds {text}, which is not finite; correct it, or leave the cell empty."
        )
    return value
