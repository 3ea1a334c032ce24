"""Finding the lines of a file of any size: 16 MiB at a time, with numpy, in one pass."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.files import BROKEN, CHUNK, LONGEST_ROW, TextFile, Verdict
from anaphora.errors import DataError

NEWLINE, RETURN, TAB, SPACE = b"\n\r\t "
Places = np.ndarray[Any, np.dtype[np.int64]]


@dataclass
class Lines:
    """Some whole lines of a file. Places count from the beginning of ``data``."""

    data: bytes
    offset: int
    """Place of ``data`` in the file."""
    number: int
    """Number of its first line, from 1."""
    array: np.ndarray[Any, np.dtype[np.uint8]] = field(init=False)
    starts: Places = field(init=False)
    ends: Places = field(init=False)
    """Without the line end, be it LF or CR LF."""
    bad: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Reason and detail for each line that cannot be used."""

    def __post_init__(self) -> None:
        self.array = np.frombuffer(self.data, dtype=np.uint8)
        self.ends = np.flatnonzero(self.array == NEWLINE)
        self.starts = np.concatenate((np.zeros(1, dtype=np.int64), self.ends[:-1] + 1))
        if b"\r" in self.data:
            self.ends = self.ends - ((self.array[self.ends - 1] == RETURN) & (self.ends > self.starts))

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.ends[index]]

    def reject(self, index: int, reason: str, detail: str = "") -> None:
        """The first reason given for a line is the one that is reported."""
        self.bad.setdefault(index, (reason, detail))

    def at(self, place: int) -> int:
        """Index of the line that holds ``place``."""
        return int(np.searchsorted(self.starts, place, side="right")) - 1


Judge = Callable[[Lines], None]
"""Rejects the lines of a chunk that cannot be used."""


@dataclass
class LineTable:
    """Where each line of a file is, and whether it can be used."""

    starts: Places
    sizes: np.ndarray[Any, np.dtype[np.int32]]
    good: np.ndarray[Any, np.dtype[np.bool_]]
    text_bytes: int


def scan(file: TextFile, verdict: Verdict, judge: Judge, *, keep_all: bool = False) -> LineTable:
    """The lines of ``file`` that are sound text and pass ``judge``; with ``keep_all`` the others too, marked."""
    starts, sizes, goods = [], [], []
    for lines in chunks(file):
        judge(lines)
        for index in sorted(lines.bad):
            verdict.reject(lines.number + index, *lines.bad[index])
        good = np.ones(len(lines), dtype=np.bool_)
        good[list(lines.bad)] = False
        if not keep_all:
            # Blank lines are no rows; they are left out without being called bad.
            good &= lines.ends > lines.starts
        chosen = slice(None) if keep_all else good
        starts.append(lines.starts[chosen] + lines.offset)
        sizes.append((lines.ends - lines.starts)[chosen].astype(np.int32))
        goods.append(good[chosen])
    table = LineTable(np.concatenate(starts), np.concatenate(sizes), np.concatenate(goods), 0)
    table.text_bytes = int(table.sizes.sum(dtype=np.int64))
    return table


def chunks(file: TextFile) -> Iterator[Lines]:
    """The file in chunks of whole lines, those that are not sound text marked; it is fingerprinted on the way."""
    file.digest = hashlib.sha256()
    for lines in _read(file):
        _check_text(lines)
        yield lines


def _read(file: TextFile) -> Iterator[Lines]:
    """The file in chunks of whole lines; a line longer than `LONGEST_ROW` is left out and marked bad."""
    offset = number = 0  # of what is in `rest`
    rest = b""
    too_long = False
    place = 0
    while block := file.at(place, CHUNK):
        file.digest.update(block)
        if place == 0:
            block, offset = block[file.begin :], file.begin
        place += CHUNK
        if too_long:
            end = block.find(b"\n")
            if end < 0:
                continue
            yield _lost(number)
            offset = place - CHUNK + end + 1
            block, number, too_long = block[end + 1 :], number + 1, False
        data = rest + block
        cut = data.rfind(b"\n") + 1
        if cut:
            lines = Lines(data[:cut], offset, number + 1)
            yield lines
            number += len(lines)
        rest, offset = data[cut:], offset + cut
        if len(rest) > LONGEST_ROW:
            rest, too_long = b"", True
    if too_long:
        yield _lost(number)
    elif rest:
        yield Lines(rest + b"\n", offset, number + 1)


def _lost(number: int) -> Lines:
    lines = Lines(b"\n", 0, number + 1)
    lines.reject(
        0, "a row that is too long", f"more than {LONGEST_ROW >> 20} MiB; are its line ends missing?"
    )
    return lines


def _check_text(lines: Lines) -> None:
    """Reject lines that are not sound UTF-8 text."""
    for index in np.flatnonzero(lines.ends - lines.starts > LONGEST_ROW).tolist():
        lines.reject(index, "a row that is too long", f"more than {LONGEST_ROW >> 20} MiB")
    if b"\0" in lines.data:
        for place in np.flatnonzero(lines.array == 0).tolist():
            lines.reject(lines.at(place), "a NUL character", f"byte {lines.offset + place} of the file")
    if b"\r" in lines.data:
        returns = np.flatnonzero(lines.array == RETURN)
        rows = np.searchsorted(lines.starts, returns, side="right") - 1
        for index in rows[returns < lines.ends[rows]].tolist():
            lines.reject(index, "a carriage return inside the row", "end rows with LF or CR LF")
    view, start = memoryview(lines.data), 0
    while start < len(lines.data):
        try:
            str(view[start:], "utf-8")
            break
        except UnicodeDecodeError as error:
            place = start + error.start
            index = lines.at(place)
            lines.reject(
                index,
                BROKEN,
                f"byte 0x{lines.data[place]:02X}, number {lines.offset + place} of the file",
            )
            start = int(lines.starts[index + 1]) if index + 1 < len(lines) else len(lines.data)


def lines_of(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file (also .gz), a chunk at a time."""
    file = TextFile(os.fspath(path))
    place, number, rest = file.begin, 0, b""
    while block := file.at(place, CHUNK):
        place += len(block)
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            number += 1
            yield number, _decode(line, path, number)
    if rest:
        yield number + 1, _decode(rest, path, number + 1)


def _decode(line: bytes, path: str | Path, number: int) -> str:
    try:
        return line.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: broken UTF-8 at byte {error.start + 1} of the line; correct it."
        ) from None
