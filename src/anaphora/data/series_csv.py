"""Series from a table: a column per variable, a row per step, oldest first."""

from __future__ import annotations

import itertools
import math
import re
import sys
import warnings
from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anaphora.data.files import TextFile
from anaphora.data.numeric import Written, is_number, like_number, mark_of, number_in, summed, tells
from anaphora.data.series import Series
from anaphora.data.series_roles import COUNTS, PARTS, counting, naming, often_names_series, owning
from anaphora.data.series_rows import Arranger, keys_of, parted
from anaphora.data.series_times import NAMES, disorder, looks_like_time, strange
from anaphora.data.sources.formats import open_file
from anaphora.data.sources.formats.comma import CsvTable
from anaphora.data.sources.report import say
from anaphora.data.sources.roles import check_named, is_missing
from anaphora.data.sources.sheet import Hints, Record, Sheet
from anaphora.errors import DataError
from anaphora.files import limits

MISSING = ("", "nan", "na", "n/a", "null", "none", "?", "-", "<na>", "nat")
"""Cells that say that a value is missing, in any case of letters."""
LOOK = 200
"""Rows that show what a column holds."""
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


@dataclass(frozen=True)
class Wanted:
    """How a table of series is to be read.

    time, owner: the columns of the times and of the names of series. decimal: the mark before decimals. kept: columns that hold values, even if
    they count or could name series. learnt: what `read_table` found in the table a model was trained on. older: read the rows as the versions did
    that neither sorted them nor filled gaps; ``whole``: as one series.
    """

    time: str | None = None
    owner: str | None = None
    decimal: str | None = None
    kept: Sequence[str] = ()
    learnt: Mapping[str, str] = field(default_factory=dict)
    older: bool = False
    whole: bool = False


class Read(NamedTuple):
    """The columns, the series, the names of the time and the series column (or ""), and what to read the same table by again."""

    columns: tuple[str, ...]
    series: list[Series]
    time: str
    owner: str
    learnt: dict[str, str]


def read_table(table: Sheet, wanted: Wanted | None = None, levels: Sequence[str] = ()) -> Read:
    """The series in a table, whose rows are those of one series, or of each of several that a column names.

    Without such a column (see `naming`) the table is one series, named like the file. Rows are sorted by their times, and steps of a calendar that
    have no row are missing values. Columns of texts are left out, with a warning. A first column that counts is the time. ``levels`` are columns
    that were the index of a data frame.
    """
    wanted = wanted or Wanted()
    unnamed = _name_index(table)
    _check_header(table)
    begin = next((record for record in table.records() if record.problem is None), None)
    if begin is None:
        _report_first(table)
        raise DataError(f"{table.name}: has a header but no rows; give at least one step.")
    _check_first(table, begin)
    time, series = _special(table, begin, wanted, unnamed)
    if unnamed:
        read = "is read as the times" if time == unnamed else "is left out"
        say(f"{table.name}: the first column, which has no name, {read}")
    names = [name for name in table.names if name not in (time, series, unnamed)]
    texts = _texts(table, names, older=wanted.older)
    texts += [name for name in levels if name in names and name not in texts]
    names = [name for name in names if name not in texts] if len(texts) < len(names) else names
    if time is None and len(names) > 1 and names[0] not in wanted.kept:
        time = _counted(table, names[0], [series] if series else [None, *texts])
        names = names[1:] if time else names
    if not names:
        raise DataError(f"{table.name}: has no column of numbers; give at least one besides the time.")
    maybe = (
        ()
        if wanted.older or series
        else [name for name in names if often_names_series(name) and name not in wanted.kept]
    )
    held = Cells(
        table,
        [name for name in names if name not in maybe],
        [*filter(None, [time, series]), *texts, *maybe],
        wanted,
    )
    times = held.texts[time] if time else []
    if wanted.older:
        series = series or (
            None if wanted.whole else owning({name: held.texts[name] for name in texts}, times)
        )
        found = _as_they_stand(table.name, held, times, held.texts[series] if series else [], time or "")
        form = ""
    else:
        arranger = Arranger(table.name, time or "", wanted.learnt.get("form"))
        understood = arranger.read(times, held.rows) if time else None
        keys = keys_of(understood, times)
        if not series and not wanted.whole:
            series = naming(
                {name: held.texts[name] for name in table.names if name in (*texts, *maybe)}, keys, levels
            )
        if not series and understood is not None and len(set(keys)) < len(keys):
            _suggest(table, held, names, times, keys, time or "")
        for name in maybe:
            if name != series:
                held.add(name)
        names = [name for name in names if name != series]
        if not names:
            raise DataError(
                f"{table.name}: has no column of numbers; give at least one besides the time and {series}."
            )
        owners = parted(held.texts[series]) if series else {_called(table.name): range(len(held.rows))}
        found = arranger.all_series(
            held.grid(names), times, understood, owners, held.rows, several=bool(series)
        )
        form = understood.form if understood else ""
    if series and series not in (wanted.owner, wanted.learnt.get("id")) and series.lower() != SERIES:
        say(f"{table.name}: the rows of each {series} are read as a series")
    _warn_of(table.name, [name for name in texts if name not in names and name != series], names, time)
    _warn_of_empty_ends(table.name, found)
    learnt = {"time": time, "id": series, "form": form, "decimal": held.decimal}
    return Read(
        tuple(names), found, time or "", series or "", {key: value for key, value in learnt.items() if value}
    )


def _warn_of_empty_ends(name: str, found: Sequence[Series]) -> None:
    for one in found:
        where = f"{one.name}: " if len(found) > 1 else ""
        if (empty := _empty_end(one)) and len(one) > empty:
            warnings.warn(
                f"{name}: {where}the last {empty} rows are empty, and read as steps that are missing; leave them out to forecast them",
                stacklevel=5,
            )


class Cells:
    """The cells of a table by column: ``values`` of those that are ``numbers``, in the decimal mark that their cells tell, and ``texts`` of others."""

    def __init__(self, table: Sheet, numbers: Sequence[str], texts: Sequence[str], wanted: Wanted):
        self.name, self._wanted = table.name, wanted
        self._separator = str(table.facts.get("delimiter", ""))
        self.values: dict[str, array[float]] = {name: array("d") for name in numbers}
        self.texts: dict[str, list[str]] = {name: [] for name in texts}
        self.rows = array("q")
        self.decimal = ""
        self._styles = {name: _Style() for name in numbers}
        for record in table.records():
            _check(table, record)
            for name, column in self.values.items():
                column.append(
                    self._number(record.number, name, table.cell(record.values, name), len(self.rows))
                )
            for name, cells in self.texts.items():
                cell = table.cell(record.values, name)
                cells.append(str(cell) if wanted.older else time_text(cell))
            self.rows.append(record.number)
        self._settle(numbers)

    def add(self, name: str) -> None:
        """Read a column of texts as numbers after all."""
        self.values[name], self._styles[name] = array("d"), _Style()
        for row, (number, text) in enumerate(zip(self.rows, self.texts[name], strict=True)):
            self.values[name].append(self._number(number, name, text, row))
        self._settle([name])

    def grid(self, names: Sequence[str]) -> np.ndarray[Any, Any]:
        """(rows, columns)"""
        return np.stack([np.frombuffer(self.values[name], dtype=np.float64) for name in names], axis=1)

    def _number(self, number: int, name: str, cell: Any, row: int) -> float:
        text = _plain(cell)
        if text.lower() in MISSING or is_missing(cell):
            return math.nan
        if isinstance(cell, str) and not self._wanted.older:
            style = self._styles[name]
            if ("." in text or "," in text) if style.whole else not style.settled:
                style.see(row, text)
        try:
            value = float(text)
        except ValueError:
            if not self._wanted.older and like_number(text):
                self._styles[name].odd.append((row, text))
                return math.nan
            raise _no_number(self.name, number, name, text) from None
        if not math.isfinite(value):
            raise DataError(
                f"{self.name}:{number}: column {name} holds {text}, which is not finite; correct it, or leave the cell empty."
            )
        return value

    def _settle(self, names: Sequence[str]) -> None:
        """Read the cells whose mark was not known while they were read."""
        every = summed(style.told for style in self._styles.values())
        for name in names:
            style, column = self._styles[name], self.values[name]
            mark = self._wanted.decimal or mark_of(style.told, every, self._separator)
            mark = mark or self._wanted.learnt.get("decimal")
            first = min([*style.odd, *style.either], default=None)
            if Written.COMMA | Written.POINT in style.told and style.odd:  # both stand before decimals
                row, text = style.odd[0]
                raise _no_number(self.name, self.rows[row], name, text)
            if mark is None and first is not None:
                raise DataError(
                    f"{self.name}:{self.rows[first[0]]}: column {name[:40]} holds {first[1]!r}, which may be "
                    f"{number_in(first[1], '.'):g} or {number_in(first[1], ','):g}; say which with --decimal (. or ,)."
                )
            again = [*style.odd, *(style.either if mark == "," else ())]
            for row, text in again:
                try:
                    column[row] = number_in(text, mark or ".")
                except ValueError:
                    raise _no_number(self.name, self.rows[row], name, text) from None
            if again and first is not None:
                self.decimal = mark or "."
                say(f"{self.name}: {first[1]!r} in column {name[:40]} is read as {column[first[0]]:.10g}")
            style.odd, style.either = [], []


@dataclass
class _Style:
    """What the cells of a column say about its decimal mark so far.

    odd: the cells that are no number as they stand. either: those that may be two. settled: a point stands before decimals.
    """

    told: Written = Written.NOTHING
    odd: list[tuple[int, str]] = field(default_factory=list)
    either: list[tuple[int, str]] = field(default_factory=list)
    whole: bool = False
    settled: bool = False

    def see(self, row: int, text: str) -> None:
        if self.settled and "," not in text:
            return
        found = tells(text)
        self.told |= found
        self.whole = Written.WHOLE in self.told
        if Written.EITHER_POINT in found:
            self.either.append((row, text))
        if Written.POINT in self.told and Written.COMMA not in self.told:
            self.settled, self.either = True, []


def time_text(cell: Any) -> str:
    """A cell as a text; of a period of pandas that is written as two times the first."""
    text = "" if is_missing(cell) else str(cell)
    return str(cell.start_time.date()) if hasattr(cell, "start_time") and "/" in text else text


def _suggest(
    table: Sheet, held: Cells, names: Sequence[str], texts: Sequence[str], keys: Sequence[Hashable], time: str
) -> None:
    """A `DataError` for a time that stands in two rows, where a column of whole numbers would tell their series apart."""
    seen: dict[Hashable, int] = {}
    row = next(row for row, key in enumerate(keys) if seen.setdefault(key, row) != row)
    for name in names:
        column = held.values.get(name)
        if column is None or any(value != int(value) for value in column if value == value):
            continue
        if naming({"id": [str(value) for value in column]}, keys):
            raise DataError(
                f"{table.name}: {time} {texts[row][:40]} stands in rows {held.rows[seen[keys[row]]]} and {held.rows[row]}; "
                f"name the column of the series with --id (id_field), such as {name[:30]}, or leave one out."
            )


def _as_they_stand(
    name: str, held: Cells, times: Sequence[str], owners: Sequence[str], column: str
) -> list[Series]:
    """The series of a run of an older version: the rows as they stand."""
    grid = held.grid(list(held.values))
    rows = parted(owners) if owners else {_called(name): list(range(len(grid)))}
    found = [
        Series(owner, grid[chosen], tuple(times[i] for i in chosen) if times else ())
        for owner, chosen in rows.items()
    ]
    for one in found:
        _check_times(name, one, f"{one.name}: " if len(found) > 1 else "", column)
    return found


def _called(name: str) -> str:
    """What to call the only series of a table."""
    return Path(name).name.partition(".")[0] or name


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
    table: Sheet, first: Record, wanted: Wanted, unnamed: str | None
) -> tuple[str | None, str | None]:
    """The names of the time and of the series column; ``unnamed``: the name that a first column without one got."""
    plain = {title.lower(): title for title in reversed(table.names)}
    learnt = {key: name for key, name in wanted.learnt.items() if name in table.names}
    for name in filter(None, (wanted.time, wanted.owner)):
        check_named(table.name, table.names, name)
    series = wanted.owner or learnt.get("id") or plain.get(SERIES)
    if time := wanted.time or learnt.get("time"):
        return time, series
    if named := [title for title in table.names if title.lower() in NAMES and title != series]:
        return named[0], series
    rest = [title for title in table.names if title != series]
    # before an index that counts rows, dates in the second column are the times
    early = rest[: 2 if unnamed else 1]
    for title in early:
        if _is_time(table.cell(first.values, title), older=wanted.older):
            return title, series
    dated = [] if wanted.older else _dated(table, [title for title in rest if title not in early], first)
    if len(dated) > 1:
        raise DataError(
            f"{table.name}: {' and '.join(name[:30] for name in dated[:2])} both hold dates; name the column of the "
            "times with --time (time_field)."
        )
    return (dated[0] if dated else unnamed), series


def _dated(table: Sheet, names: Sequence[str], first: Record) -> list[str]:
    """The columns of which every cell that is looked at is a date."""
    left = [name for name in names if _is_time(table.cell(first.values, name))]
    for record in itertools.islice(table.records() if left else (), LOOK):
        if record.problem is None:
            left = [name for name in left if _is_time(table.cell(record.values, name))]
    return left


def _is_time(value: Any, *, older: bool = False) -> bool:
    dated = hasattr(value, "isoformat") or hasattr(value, "start_time")
    return value is not None and (dated or looks_like_time(str(value), older=older))


def _texts(table: Sheet, names: Sequence[str], *, older: bool) -> list[str]:
    """Columns of which no value is a number; only where there are rows enough to tell."""
    numbers: set[str] = set()
    rows = 0
    filled: dict[str, int] = dict.fromkeys(names, 0)
    for rows, record in enumerate(table.records(), start=1):
        if record.problem is None:
            for name in names:
                text = _plain(table.cell(record.values, name))
                filled[name] += text.lower() not in MISSING
                number = is_number(text.replace(",", ".", 1)) or (not older and like_number(text))
                if number and text.lower() not in MISSING:
                    numbers.add(name)
        if rows > LOOK or len(numbers) == len(names):
            break
    return [name for name in names if name not in numbers and filled[name] >= _FEW]


def _plain(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _no_number(where: str, row: int, column: str, text: str) -> DataError:
    shown = text if len(text) <= 30 else f"{text[:27]}…"
    comma = " (write a decimal point, not a comma)" if is_number(text.replace(",", ".", 1)) else ""
    if _THOUSANDS.fullmatch(text):
        comma = " (write no comma between thousands, and a decimal point instead of a decimal comma)"
    return DataError(
        f"{where}:{row}: column {column} holds {shown!r}, which is not a number{comma}; correct it, or leave "
        "the cell empty if the value is missing."
    )
