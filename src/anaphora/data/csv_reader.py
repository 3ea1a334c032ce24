"""Comma-separated values with a header; fields in quotes may hold commas and line ends."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from anaphora.data.fields import INPUTS, OUTPUTS, choose_fields
from anaphora.data.file_pairs import FilePairs, FileRows
from anaphora.data.files import LONGEST_ROW, TextFile, Verdict
from anaphora.data.jsonl_reader import text_problem
from anaphora.data.pairs import Pair
from anaphora.errors import DataError

LOOK = 1 << 16
"""Bytes below the first row that are compared with it."""


class _LineFeed:
    """Lines for the csv module, which says when a record ends; this knows where in the file that is."""

    def __init__(self, file: TextFile, stream: BinaryIO):
        self._file, self._stream = file, stream
        self.place = stream.seek(file.begin)
        file.digest.update(file.at(0, file.begin))
        self.number = 0
        self.problem: tuple[str, str] | None = None
        """What was wrong with a line since this was last set to None."""

    def __iter__(self) -> Iterator[str]:
        while line := self._stream.readline(LONGEST_ROW):
            self._file.digest.update(line)
            self.place += len(line)
            self.number += 1
            if len(line) == LONGEST_ROW and not line.endswith(b"\n"):
                self._pass_over()
                line = b"\n"
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                broken = self.place - len(line) + error.start
                self.problem = (
                    "broken UTF-8",
                    f"byte 0x{line[error.start]:02X}, number {broken} of the file",
                )
                yield line.decode("utf-8", errors="replace")

    def _pass_over(self) -> None:
        self.problem = ("a row that is too long", f"more than {LONGEST_ROW >> 20} MiB")
        while (line := self._stream.readline(LONGEST_ROW)) and not line.endswith(b"\n"):
            self._file.digest.update(line)
            self.place += len(line)
        self._file.digest.update(line)
        self.place += len(line)


class CsvRecords:
    """The header of a file and its records in order, as the csv module parses them.

    ``named``: columns the caller names; by number (``"2"``) when the file has no header. A first row that looks like data
    is an error otherwise.
    """

    def __init__(self, file: TextFile, stream: BinaryIO, named: Sequence[str]):
        self.lines = _LineFeed(file, stream)
        feed = iter(self.lines)
        first = next(feed, "")
        self.delimiter = max(",;\t", key=first.count)
        # The first line again: a header may go on over several lines like any record.
        self.records = csv.reader(itertools.chain([first], feed), delimiter=self.delimiter, strict=True)
        self.header = _header(file.name, self.records, self.lines)
        self._settle_header(file, stream, named)
        for title in self.header:
            if self.header.count(title) > 1:
                raise DataError(
                    f"{file.name}:1: the header names {' '.join(title.split()) or '(nothing)'} twice; give each column its own name."
                )

    def _settle_header(self, file: TextFile, stream: BinaryIO, named: Sequence[str]) -> None:
        """Keep the first row as the header, or number the columns and begin with the first row again."""
        if set(named) & set(self.header):
            return
        numbered = bool(named) and all(name.isdecimal() for name in named)
        usual = [title for title in self.header if title.lower() in (*INPUTS, *OUTPUTS)]
        if numbered and usual:
            raise DataError(
                f"{file.name}:1: the first row is a header ({' '.join(', '.join(self.header[:20]).split())}); name the columns by it, "
                "since numbers are for files without one."
            )
        if not numbered:
            reason = self._looks_like_data(file)
            if reason is not None:
                reason = " ".join(reason.split())
                raise DataError(
                    f"{file.name}:1: the first row looks like data, not like a header ({reason}); add a row of names, or "
                    "give the columns by number, from 1: --source-field 2 --target-field 1."
                )
            return
        self.header = [str(number) for number in range(1, len(self.header) + 1)]
        file.digest = hashlib.sha256()
        self.lines = _LineFeed(file, stream)
        self.records = csv.reader(iter(self.lines), delimiter=self.delimiter, strict=True)

    def _looks_like_data(self, file: TextFile) -> str | None:
        """What makes the first row look like data rather than names, if anything does."""
        text = file.at(self.lines.place, LOOK).decode("utf-8", errors="replace").splitlines(keepends=True)
        try:
            below = list(itertools.islice(csv.reader(text, delimiter=self.delimiter), 200))
        except csv.Error:
            return None
        below = [row for row in below if len(row) == len(self.header)]
        for column, title in enumerate(self.header):
            values = [row[column].strip() for row in below]
            if is_number(title) and values and all(map(is_number, values)):
                return f"{title} stands above numbers"
            if len(title) > 60 or len(title.split()) > 8:
                return f"{title[:24]!r} … is a sentence"
            if title and values.count(title) > 1 and len(set(values)) <= len(values) / 2:
                return f"{title} is also a value below"
        return None


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_csv(
    file: TextFile,
    bad_rows: str,
    source: str | None,
    target: str | None,
    learnt: Mapping[str, Any] | None = None,
) -> FilePairs:
    """Index the records of ``file``; none of its text is held."""
    verdict = Verdict(file.name, bad_rows)
    with contextlib.closing(file.stream()) as stream, large_fields():
        trained = [(learnt or {}).get(key) for key in ("source_field", "target_field")]
        read = CsvRecords(file, stream, [n for n in (source, target) if n] or [n for n in trained if n])
        header, delimiter = read.header, read.delimiter
        names = choose_fields(file.name, header, source, target, learnt)
        columns = header.index(names[0]), header.index(names[1])
        starts, sizes = _index(read.records, read.lines, verdict, len(header), columns)
    verdict.require(len(starts))

    def parse(rows: list[str]) -> list[Pair]:
        with large_fields():
            found = [next(csv.reader([row], delimiter=delimiter, strict=True)) for row in rows]
        return [(row[columns[0]], row[columns[1]]) for row in found]

    facts = {
        "kind": "csv",
        "bad_rows": bad_rows,
        "skipped": dict(verdict.skipped),
        "source_field": names[0],
        "target_field": names[1],
    }
    return FilePairs(FileRows(file, starts, sizes), parse, int(sizes.sum(dtype=np.int64)), facts)


def _index(
    records: Iterator[list[str]], lines: _LineFeed, verdict: Verdict, width: int, columns: tuple[int, int]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int32]]]:
    starts, sizes = array("q"), array("i")
    while True:
        start, number, lines.problem = lines.place, lines.number + 1, None
        try:
            row = next(records, None)
            problem = lines.problem or (_problem(row, width, columns) if row else None)
        except csv.Error as error:
            row, problem = [], ("broken quotes", str(error))
        if problem:
            verdict.reject(number, *problem)
        elif row:
            starts.append(start)
            sizes.append(lines.place - start)
        elif row is None:
            return np.array(starts, dtype=np.int64), np.array(sizes, dtype=np.int32)


def _problem(row: list[str], width: int, columns: tuple[int, int]) -> tuple[str, str] | None:
    if len(row) != width:
        return "wrong number of columns", f"{len(row)} where the header has {width}"
    for side, column in zip(("source", "target"), columns, strict=True):
        if problem := text_problem(row[column]):
            return problem, side
    return None


def _header(name: str, records: Iterator[list[str]], lines: _LineFeed) -> list[str]:
    try:
        header = [title.strip() for title in next(records, [])]
    except csv.Error as error:
        raise DataError(f"{name}:1: the header cannot be read ({error}); correct its quotes.") from None
    if lines.problem:
        reason, detail = lines.problem
        raise DataError(f"{name}:1: {reason} in the header ({detail}); save the file as UTF-8 with a header.")
    return header


@contextlib.contextmanager
def large_fields() -> Iterator[None]:
    """The csv module's limit on a field is one number for the whole process; put it back afterwards."""
    before = csv.field_size_limit(LONGEST_ROW)
    try:
        yield
    finally:
        csv.field_size_limit(before)
