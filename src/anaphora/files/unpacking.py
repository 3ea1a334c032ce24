"""Compressed files: unpacked piece by piece, and stopped where a file grows beyond its limits."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from anaphora.files.bounds import limits
from anaphora.files.opening import Refused, open_plain

_CHUNK = 1 << 20


class _Bounded(io.RawIOBase):
    """What is inside a ``.gz`` file, as far as the limits allow."""

    def __init__(self, path: str | Path, inside: gzip.GzipFile, packed: int):
        self._path, self._inside, self._packed = path, inside, packed
        self._bound, self._found = limits(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        block = self._inside.read(min(len(buffer), _CHUNK))
        self._found += len(block)
        if reason := self._bound.excess(self._found, self._packed):
            raise Refused(self._path, reason, errno.EFBIG)
        buffer[: len(block)] = block
        return len(block)


@contextlib.contextmanager
def unpacking(path: str | Path) -> Iterator[BinaryIO]:
    """What is inside a ``.gz`` file, to be read piece by piece. Reading raises `Refused` where it unpacks to too much,
    ``EOFError``, ``zlib.error`` or ``gzip.BadGzipFile`` where it is damaged."""
    with os.fdopen(open_plain(path), "rb") as raw, gzip.open(raw, "rb") as inside:
        bounded = _Bounded(path, inside, os.fstat(raw.fileno()).st_size)
        with io.BufferedReader(bounded, _CHUNK) as file:
            yield file


def pieces(path: str | Path) -> Iterator[bytes]:
    """What is inside a ``.gz`` file, in blocks; raises as `unpacking` does."""
    with unpacking(path) as file:
        while block := file.read(_CHUNK):
            yield block


def unpacked(path: str | Path) -> bytes:
    """All that is inside a ``.gz`` file, in memory."""
    return b"".join(pieces(path))


def unpacked_to_disk(path: str | Path, folder: Path | None) -> int:
    """A descriptor of a file without a name in ``folder`` that holds what is inside a ``.gz`` file."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryFile(dir=folder, buffering=0))
        for block in pieces(path):
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(scratch.fileno(), rest) :]
        return os.dup(scratch.fileno())
