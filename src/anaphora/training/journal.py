"""Append-only files of one JSON object per line, which a resumed run continues at the byte it had reached."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from anaphora.errors import RunError
from anaphora.files import parse_json, read_bytes, streamed
from anaphora.files.schemas import problem
from anaphora.files.writing import open_kept, sync_folder, writing
from anaphora.training.schemas import ROWS

_CHUNK = 1 << 20
_PIECES = 64
LONGEST_LINE = 1 << 24
"""Bytes of one line: what keeps memory bounded."""


class Journal:
    """``metrics.jsonl`` and its like. ``mark()`` is what a checkpoint keeps, ``rewind(mark)`` goes back to it."""

    def __init__(self, path: Path):
        self.path = path
        self._descriptor: int | None = None  # the file is made when there is something to write
        self._bytes = 0
        self._digest = hashlib.sha256()
        self._named = False  # whether the name is on the disk for sure

    def open(self, mark: Mapping[str, Any] | None = None) -> str | None:
        """Open for appending at ``mark`` (None: from the start), dropping what was written after it.

        Returns a sentence when the file no longer holds what it held at ``mark``, else None.
        """
        reached = int(mark["bytes"]) if mark else 0
        self._bytes, self._digest = 0, hashlib.sha256()
        with writing(self.path):
            self._descriptor = self._opened()
            if self._descriptor is not None:
                while block := os.pread(self._descriptor, min(_CHUNK, reached - self._bytes), self._bytes):
                    self._digest.update(block)
                    self._bytes += len(block)
                os.ftruncate(self._descriptor, self._bytes)
        if mark and self.mark() != dict(mark):
            return f"{self.path}: its first {reached} bytes are not those that were written; the history is incomplete."
        return None

    def open_whole(self) -> None:
        """Open for appending after everything that is there, less a line cut off by a crash."""
        with writing(self.path):
            content = read_bytes(self.path, follow=False) if os.path.lexists(self.path) else b""
        whole = content[: content.rfind(b"\n") + 1]
        self.open({"bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest()})

    def _opened(self) -> int | None:
        """Return a descriptor for appending, or None where there is no file."""
        try:
            return open_kept(self.path, os.O_APPEND, create=False)
        except FileNotFoundError:
            return None

    def append(self, line: Mapping[str, Any]) -> None:
        """Add one line. Numbers that are not finite become null, which every JSON reader knows."""
        data = (json.dumps(plain(line), ensure_ascii=False, allow_nan=False) + "\n").encode()
        with writing(self.path):
            if self._descriptor is None:
                self._descriptor = open_kept(self.path, os.O_APPEND)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:
                with contextlib.suppress(OSError):  # no half line, where the disk still lets us
                    os.ftruncate(self._descriptor, self._bytes)
                raise
        self._bytes += len(data)
        self._digest.update(data)

    def mark(self) -> dict[str, Any]:
        """Where the file stands and the hash of all before."""
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def sync(self) -> None:
        """Wait until all lines are on the disk, and the name of the file."""
        if self._descriptor is not None:
            with writing(self.path):
                os.fsync(self._descriptor)
                if not self._named:
                    sync_folder(self.path.parent)
                    self._named = True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_journal(path: Path, *, most: int | None = None) -> Iterator[dict[str, Any]]:
    """The lines of a journal; a last line cut off by a crash is left out.

    Of a file of more than ``most`` bytes, as much is read in pieces from its beginning to its end.
    """
    if not os.path.lexists(path):
        return
    try:
        with streamed(path, follow=False) as file:
            size = os.fstat(file.fileno()).st_size
            if most is None or size <= most:
                yield from _lines(path, file, 1)
                return
            for number in range(_PIECES):
                file.seek(number * (size - most // _PIECES) // (_PIECES - 1))
                if number:
                    file.readline(LONGEST_LINE)  # the rest of a line that began before
                yield from _lines(path, file, None, file.tell() + most // _PIECES)
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}); restore it from a copy.") from error


def _lines(
    path: Path, file: BinaryIO, number: int | None, end: int | None = None
) -> Iterator[dict[str, Any]]:
    """The lines from the present place on that begin before ``end``; ``number`` is that of the first, if it is known."""
    schema = ROWS.get(path.name)
    place = file.tell()
    while (end is None or place < end) and (line := file.readline(LONGEST_LINE)):
        if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
            return
        try:
            read = parse_json(line)
            reason = "it is not an object" if not isinstance(read, dict) else None
            reason = reason or (problem(schema, read) if schema else None)
        except ValueError as error:
            reason = str(error)
        if reason:
            where = f"{path}: byte {place}" if number is None else f"{path}:{number}"
            raise RunError(
                f"{where}: not a line of a journal ({reason}), so the file is damaged; restore it from a copy."
            )
        yield read
        place += len(line)
        number = None if number is None else number + 1


def plain(value: Any) -> Any:
    """A value without numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
