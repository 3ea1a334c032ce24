"""Files of text: rows by their place, lines found by numpy, and files that appear when they are whole."""

from __future__ import annotations

import codecs
import errno
import gzip
import hashlib
import os
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from anaphora.errors import DataError
from anaphora.files import Refused, limits, open_plain
from anaphora.files.unpacking import packed_ending, unpacked_to_disk, written_to_disk
from anaphora.files.writing import make_folder, replacing

# A text file that stays on disk: opened once, fingerprinted while it is scanned, read at any place.

CHUNK = 1 << 24
LONGEST_ROW = 1 << 24
"""Bytes in the longest row that is read: what keeps memory bounded."""
BROKEN = "broken UTF-8"
_SKIP = 'or set bad_rows="skip" (--skip-bad) to leave such rows out'
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh91AY&SY": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"PK\x03\x04": "zip, as are .xlsx and .docx",
    b"7z\xbc\xaf": "7z",
}
"""How packed files begin."""
_WHITE = frozenset(b"\t\n\v\f\r\x1b\x1c\x1d\x1e\x1f")
"""Control characters that texts hold: white space, and what separates fields or colours a terminal."""
_CONVERT = "save the file as UTF-8 (`iconv -f WINDOWS-1252 -t UTF-8` for one of an older Windows program)"


class TextFile:
    """Bytes of a file (of what is inside, for packed ones, see `PACKED` of `anaphora.files.unpacking`), read with ``pread``: nothing of it stays
    in memory. UTF-16 is read as the UTF-8 it would be.

    ``folder`` is where a compressed file is unpacked to, into a file without a name that is gone when this
    object is; by default the system's folder for temporary files. ``lines`` are read instead of the file, if given: rows
    of a file that is no text, made into text.
    """

    def __init__(self, path: str | Path, folder: Path | None = None, lines: Iterable[bytes] | None = None):
        self.name = str(path)
        self.path = os.path.abspath(path)
        self.encoding = "UTF-8"
        try:
            if lines is not None:
                self._fd = written_to_disk(lines, folder)
            else:
                self._fd = unpacked_to_disk(path, folder) if packed_ending(path) else open_plain(path)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(
                f"{self.name} is damaged and cannot be unpacked ({error}); make it again."
            ) from None
        except OSError as error:
            if isinstance(error, Refused) and error.errno != errno.EFBIG:
                raise DataError(
                    f"{self.name} is not a file ({error.strerror}); give the path of a text file."
                ) from None
            reason = error.strerror or str(error)
            raise DataError(f"{self.name} cannot be read: {reason}; check the path.") from None
        if os.pread(self._fd, 2, 0) in UTF_16:
            self._fd, before, self.encoding = self._in_utf8(folder), self._fd, "UTF-16"
            os.close(before)
        weakref.finalize(self, os.close, self._fd)
        self.size = os.fstat(self._fd).st_size
        self.begin = self._check_head()
        self.digest = hashlib.sha256()
        """Fed by the reader that scans the file from its beginning to its end."""

    def _in_utf8(self, folder: Path | None) -> int:
        """A descriptor of the same text as UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-16")()

        def blocks() -> Iterator[bytes]:
            place = 0
            while block := os.pread(self._fd, 1 << 20, place):
                place += len(block)
                yield decoder.decode(block).encode()
            yield decoder.decode(b"", final=True).encode()

        try:
            return written_to_disk(blocks(), folder)
        except UnicodeError as error:
            os.close(self._fd)
            raise DataError(
                f"{self.name} begins like UTF-16 and is none ({error}); save it as UTF-8 text."
            ) from None

    def at(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on (fewer at the end)."""
        return os.pread(self._fd, size, offset)

    def whole(self) -> bytes:
        """All bytes, where they are few enough to be held in memory."""
        if reason := limits().excess(self.size):
            raise DataError(f"{self.name} cannot be read: {reason}.")
        return self.at(0, self.size)

    def stream(self) -> BinaryIO:
        """A separate reader from the beginning of the file."""
        return os.fdopen(os.dup(self._fd), "rb", buffering=1 << 20)

    def fingerprint(self) -> dict[str, int | str]:
        """Size and SHA-256 of the scanned bytes."""
        return {"bytes": self.size, "sha256": self.digest.hexdigest()}

    def _check_head(self) -> int:
        """Where the text begins; a `DataError` for an empty file or one that is not UTF-8 at all."""
        head = self.at(0, 512)
        if head in (b"", b"\xef\xbb\xbf"):
            raise DataError(f"{self.name} is empty; give a file with at least one row.")
        for begin, kind in _PACKED.items():
            if head.startswith(begin):
                raise DataError(f"{self.name} is a packed file ({kind}); unpack it, and give what is inside.")
        controls = sum(byte < 32 and byte not in _WHITE for byte in head)
        if controls > max(8, len(head) // 20) and head.count(0) <= len(head) // 4 and not _begins_utf8(head):
            raise DataError(f"{self.name} is a binary file, not a text; give a text file.")
        if head.count(0) > len(head) // 4:
            raise DataError(
                f"{self.name} looks like UTF-16 without its mark, or a binary file; save it as UTF-8 text."
            )
        return 3 if head.startswith(b"\xef\xbb\xbf") else 0


def _begins_utf8(head: bytes) -> bool:
    """Whether the first bytes of a file are UTF-8; its last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def beside(folder: Path, name: str, rooms: Iterable[str] = (), endings: Iterable[str] = ()) -> Path:
    """The file that a list in ``folder`` calls ``name``: there, or in one of the ``rooms``, perhaps without its ending;
    of ``a.jpg#2``, the third text about it, ``a.jpg``."""
    plain = name.partition("#")[0]
    places = (folder, *(folder / room for room in rooms))
    tried = [
        place / f"{one}{ending}" for place in places for one in (name, plain) for ending in ("", *endings)
    ]
    return next((path for path in tried if os.path.isfile(path)), folder / name)


class Verdict:
    """What to do with bad rows: the first one stops, or all are left out and counted by reason."""

    def __init__(self, name: str, bad_rows: str, place: Callable[[int], str] | None = None):
        """``place``: where row i of a source, from 0, stands, for readers that count its rows instead of lines."""
        if bad_rows not in ("strict", "skip"):
            raise ValueError(f'bad_rows must be "strict" or "skip", not {bad_rows!r}')
        self.name = name
        self.bad_rows = bad_rows
        self._place = place
        self.skipped: Counter[str] = Counter()

    def reject(self, line: int, reason: str, detail: str = "") -> None:
        """The row at ``line`` (from 1) cannot be used."""
        if self.bad_rows == "strict":
            shown = f" ({detail})" if detail else ""
            remedy = _CONVERT if reason == BROKEN else "correct the row"
            where = f"{self.name}:{line}" if self._place is None else self._place(line - 1)
            raise DataError(f"{where}: {reason}{shown}; {remedy}, {_SKIP}.")
        self.skipped[reason] += 1

    def require(self, rows: int) -> None:
        """A `DataError` when nothing is left."""
        if not rows:
            why = ", ".join(f"{count} × {reason}" for reason, count in self.skipped.items())
            raise DataError(f"{self.name} has no usable row{f' ({why})' if why else ''}; check its form.")


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


# Files that appear when they are complete, or not at all: what is given from Python, kept for a resume.


def save_arrays(path: Path, **arrays: Any) -> None:
    """An ``.npz`` file of ``arrays``."""
    with written_whole(path, binary=True) as file:
        np.savez(file, **arrays)


@contextmanager
def written_whole(path: Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """A file to write to (text, unless it is ``binary``); it takes its place at ``path`` at the end of the block, synced
    to the disk, and leaves nothing behind if the block fails."""
    try:
        make_folder(path.parent)
        with replacing(path, text=not binary) as file:
            yield file
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}; free space or choose another folder."
        ) from None
