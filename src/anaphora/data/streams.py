"""Lines of text from a file or a pipe, handed on as soon as they have arrived."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from anaphora.data.files import UTF_16, TextFile
from anaphora.errors import DataError
from anaphora.files import clause, open_stream
from anaphora.files.unpacking import packed_ending

_BLOCK = 1 << 16
_NUL, _NO_TEXT = "a zero byte", "is not UTF-8 text; convert the file to UTF-8."
_LONGEST = 1 << 20  # bytes; no line of text is a megabyte, so such a file is something else


def line_batches(name: str, most: int = 256) -> Iterator[list[str]]:
    """Batches of at most ``most`` lines of the file ``name``, or of stdin if it is ``-``.

    What has arrived is handed on at once: a slow pipe gives batches of one line, a file full ones. A line
    that is not UTF-8 raises a DataError with its number, after the lines before it have been handed on. A packed file and
    one in UTF-16 are read as training reads them.
    """
    if name == "-":
        yield from _batches(sys.stdin.fileno(), "standard input", most)
        return
    descriptor = _opened(name)
    try:
        if _is_plain(name, descriptor):
            yield from _batches(descriptor, name, most)
            return
    finally:
        os.close(descriptor)
    with TextFile(name).stream() as file:
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        yield from _batches(file.fileno(), name, most)


def check_readable(name: str, *, folders: bool = False) -> None:
    """Raise the `DataError` that reading the file ``name`` would begin with, if there is one; with ``folders`` a folder
    is as good."""
    if not (folders and Path(name).is_dir()):
        os.close(_opened(name))


def _opened(name: str) -> int:
    if Path(name).is_dir():
        raise DataError(f"{name} is a folder; give a text file with one input per line.")
    try:
        return open_stream(name)
    except FileNotFoundError:
        how = "; to ask about a text, pipe it: echo TEXT | anaphora predict RUN" if " " in name else ""
        raise DataError(f"{name}: there is no such file{how}.") from None
    except OSError as error:
        raise DataError(f"{name} cannot be read: {clause(error)}.") from None


def _is_plain(name: str, descriptor: int) -> bool:
    """Whether the bytes of a file are its text; those of a pipe are."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return True
    return not packed_ending(name) and os.pread(descriptor, 2, 0) not in UTF_16


def _batches(descriptor: int, name: str, most: int) -> Iterator[list[str]]:
    rest = b""
    count = 0
    batch: list[str] = []
    while True:
        block = os.read(descriptor, _BLOCK)
        *whole, rest = (rest + block).split(b"\n")
        if not block and rest:
            whole, rest = [*whole, rest], b""
        if len(rest) > _LONGEST:
            raise DataError(
                f"{name}:{count + len(whole) + 1}: this line is over a megabyte; is this a text file?"
            )
        for raw in whole:
            count += 1
            try:
                batch.append(_decode(raw, first=count == 1))
            except UnicodeDecodeError as error:
                if batch:
                    yield batch
                what = "holds a NUL character; is this a text file?" if error.reason == _NUL else _NO_TEXT
                raise DataError(f"{name}:{count}: this line {what}") from None
            if len(batch) == most:
                yield batch
                batch = []
        if batch:
            yield batch
            batch = []
        if not block:
            return


def _decode(raw: bytes, *, first: bool) -> str:
    if b"\0" in raw:
        raise UnicodeDecodeError("utf-8", raw, 0, 1, _NUL)
    return raw.decode("utf-8-sig" if first else "utf-8").removesuffix("\r")
