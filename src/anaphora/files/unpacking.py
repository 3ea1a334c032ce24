"""Compressed files: unpacked piece by piece, and stopped where a file grows beyond its limits."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from anaphora.files.bounds import limits
from anaphora.files.opening import Refused, open_plain

_CHUNK = 1 << 20


def pieces(path: str | Path) -> Iterator[bytes]:
    """What is inside a ``.gz`` file. Raises `Refused` where it unpacks to too much, ``EOFError``, ``zlib.error`` or
    ``gzip.BadGzipFile`` where it is damaged."""
    with os.fdopen(open_plain(path), "rb") as raw, gzip.open(raw, "rb") as inside:
        packed, bound, found = os.fstat(raw.fileno()).st_size, limits(), 0
        while block := inside.read(_CHUNK):
            found += len(block)
            if reason := bound.excess(found, packed):
                raise Refused(path, reason, errno.EFBIG)
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
