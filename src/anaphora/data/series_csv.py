"""Series from comma-separated values with a header: a column per variable, a row per step, oldest first."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from anaphora.data.files import TextFile
from anaphora.data.series import Series
from anaphora.data.series_times import NAMES, is_number, looks_like_time
from anaphora.errors import DataError
from anaphora.files import limits

MISSING = ("", "nan", "na", "n/a", "null", "none", "?", "-")
"""Cells that say that a value is missing, in any case of letters."""
SERIES = "series"
"""A column called so says which series a row belongs to."""


def read_table(path: str | Path) -> tuple[tuple[str, ...], list[Series], str, str]:
    """The columns, the series, and the names of the time and the series column of one file (``-``: standard input).

    Without a column ``series`` the file is one series, named like the file.
    """
    name = "standard input" if str(path) == "-" else str(path)
    raw = _standard_input() if str(path) == "-" else TextFile(path).whole()
    records = _records(name, _text(name, raw))
    header = _header(name, records)
    body = [(number, row) for number, row in records[1:] if row]
    if not body:
        raise DataError(f"{name}: has a header but no rows; give at least one step.")
    time, series = _special(header, body[0][1])
    values = [i for i in range(len(header)) if i not in (time, series)]
    if not values:
        raise DataError(f"{name}: has no column of numbers; give at least one besides the time.")
    table = np.empty((len(body), len(values)))
    for place, (number, row) in enumerate(body):
        if len(row) != len(header):
            raise DataError(
                f"{name}:{number}: has {len(row)} columns where the header has {len(header)}; correct the row."
            )
        for column, i in enumerate(values):
            table[place, column] = _number(name, number, header[i], row[i])
    times = [row[time] for _, row in body] if time is not None else []
    owners = [row[series] for _, row in body] if series is not None else []
    found = _parted(Path(name).stem, table, times, owners)
    columns = tuple(header[i] for i in values)
    return columns, found, "" if time is None else header[time], "" if series is None else header[series]


def _parted(name: str, table: np.ndarray, times: Sequence[str], owners: Sequence[str]) -> list[Series]:
    """One series, or one for each different owner in the order in which they first appear."""
    if not owners:
        return [Series(name, table, tuple(times))]
    rows: dict[str, list[int]] = {}
    for row, owner in enumerate(owners):
        rows.setdefault(owner, []).append(row)
    return [
        Series(owner, table[chosen], tuple(times[i] for i in chosen) if times else ())
        for owner, chosen in rows.items()
    ]


def _standard_input() -> bytes:
    most = limits()
    raw = sys.stdin.buffer.read(most.bytes + 1)
    if reason := most.excess(len(raw)):
        raise DataError(f"standard input cannot be read: {reason}.")
    return raw


def _text(name: str, raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}:{number}: this is not UTF-8 text; save the file as UTF-8.") from None
    if not text.strip():
        raise DataError(f"{name} is empty; give a header and at least one row.")
    return text


def _records(name: str, text: str) -> list[tuple[int, list[str]]]:
    """Every record with the number of its last line."""
    lines = text.splitlines()
    delimiter = max(",;\t", key=lines[0].count)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    found: list[tuple[int, list[str]]] = []
    try:
        for row in reader:
            found.append((reader.line_num, row))
    except csv.Error as error:
        raise DataError(
            f"{name}:{reader.line_num}: cannot be read as CSV ({error}); correct the row."
        ) from None
    return found


def _header(name: str, records: Sequence[tuple[int, list[str]]]) -> list[str]:
    header = [title.strip() for title in records[0][1]]
    for title in header:
        if not title:
            raise DataError(f"{name}:1: a column has no name; give each column its own.")
        if header.count(title) > 1:
            raise DataError(
                f"{name}:1: the header names {' '.join(title.split())} twice; give each column its own name."
            )
    if all(is_number(title) for title in header):
        raise DataError(f"{name}:1: holds numbers where the names of the columns belong; add a header.")
    return header


def _special(header: Sequence[str], first: Sequence[str]) -> tuple[int | None, int | None]:
    """The places of the time and of the series column."""
    plain = [title.lower() for title in header]
    series = plain.index(SERIES) if SERIES in plain else None
    named = [i for i, title in enumerate(plain) if title in NAMES]
    if named:
        return named[0], series
    place = 1 if series == 0 else 0
    unnamed = place < min(len(header), len(first)) and looks_like_time(first[place])
    return (place if unnamed else None), series


def _number(name: str, line: int, column: str, cell: str) -> float:
    text = cell.strip()
    if text.lower() in MISSING:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        shown = text if len(text) <= 30 else f"{text[:27]}…"
        comma = " (write a decimal point, not a comma)" if is_number(text.replace(",", ".", 1)) else ""
        raise DataError(
            f"{name}:{line}: column {column} holds {shown!r}, which is not a number{comma}; correct it, or leave "
            "the cell empty if the value is missing."
        ) from None
    if not math.isfinite(value):
        raise DataError(
            f"{name}:{line}: column {column} holds {text}, which is not finite; correct it, or leave the cell empty."
        )
    return value
