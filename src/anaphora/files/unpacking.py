"""Compressed files: unpacked piece by piece, and stopped where a file grows beyond its limits."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from anaphora.errors import DataError
from anaphora.files.bounds import limits
from anaphora.files.opening import Refused, open_plain

_CHUNK = 1 << 20
PACKED = (".gz", ".zst", ".zip")
"""Endings of files that are unpacked before they are read."""


def packed_ending(path: str | Path) -> str:
    """``.gz``, ``.zst`` or ``.zip`` where the name ends so, else nothing."""
    return next((ending for ending in PACKED if str(path).lower().endswith(ending)), "")


def check_unpacked(path: str | Path) -> None:
    """Refuse a name that says packed for a file that is written as it is: it could not be read again."""
    if ending := packed_ending(path):
        plain = str(path)[: -len(ending)]
        raise DataError(f"{path}: nothing is packed here; name it {plain}, and pack it afterwards.")


class _Bounded(io.RawIOBase):
    """What is inside a compressed file, as far as the limits allow."""

    def __init__(self, path: str | Path, inside: IO[bytes], packed: int):
        self._path, self._inside, self._packed = path, inside, packed
        self._bound, self._found = limits(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        block = _read(self._inside, min(len(buffer), _CHUNK))
        self._found += len(block)
        if reason := self._bound.excess(self._found, self._packed):
            raise Refused(self._path, reason, errno.EFBIG)
        buffer[: len(block)] = block
        return len(block)


@contextlib.contextmanager
def unpacking(path: str | Path) -> Iterator[BinaryIO]:
    """What is inside a ``.gz``, ``.zst`` or ``.zip`` file (of one file), to be read piece by piece.

    Reading raises `Refused` where it unpacks to too much, ``EOFError``, ``zlib.error`` or ``gzip.BadGzipFile`` where it
    is damaged.
    """
    with os.fdopen(open_plain(path), "rb") as raw, contextlib.ExitStack() as stack:
        inside = _OPENERS[packed_ending(path) or ".gz"](path, raw, stack)
        bounded = _Bounded(path, inside, os.fstat(raw.fileno()).st_size)
        with io.BufferedReader(bounded, _CHUNK) as file:
            yield file


def pieces(path: str | Path) -> Iterator[bytes]:
    """What is inside a compressed file, in blocks; raises as `unpacking` does."""
    with unpacking(path) as file:
        while block := file.read(_CHUNK):
            yield block


def unpacked(path: str | Path) -> bytes:
    """All that is inside a compressed file, in memory."""
    return b"".join(pieces(path))


def unpacked_to_disk(path: str | Path, folder: Path | None) -> int:
    """A descriptor of a file without a name in ``folder`` that holds what is inside a compressed file."""
    return written_to_disk(pieces(path), folder)


def written_to_disk(blocks: Iterable[bytes], folder: Path | None) -> int:
    """A descriptor of a file without a name in ``folder`` (None: the system's) that holds ``blocks``."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryFile(dir=folder, buffering=0))
        for block in blocks:
            rest = memoryview(block)
            while rest:
                rest = rest[os.write(scratch.fileno(), rest) :]
        return os.dup(scratch.fileno())


def _read(inside: IO[bytes], most: int) -> bytes:
    try:
        return inside.read(most)
    except zipfile.BadZipFile as error:  # its checksum
        raise zlib.error(str(error)) from None
    except Exception as error:
        if type(error).__name__ == "ZstdError":
            raise zlib.error(str(error)) from None
        raise


def _gz(path: str | Path, raw: IO[bytes], stack: contextlib.ExitStack) -> Any:
    return stack.enter_context(gzip.open(raw, "rb"))


def _zst(path: str | Path, raw: IO[bytes], stack: contextlib.ExitStack) -> Any:
    try:
        import zstandard
    except ImportError:
        raise Refused(path, "it needs zstandard: pip install anaphora[tables]", errno.EFBIG) from None
    return stack.enter_context(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))


def _zip(path: str | Path, raw: IO[bytes], stack: contextlib.ExitStack) -> Any:
    try:
        archive = stack.enter_context(zipfile.ZipFile(raw))
        inside = [one for one in archive.infolist() if not one.is_dir() and not _aside(one.filename)]
        if len(inside) != 1:
            raise Refused(
                path, f"it holds {len(inside)} files; unpack it and name the one to read", errno.EFBIG
            )
        return stack.enter_context(archive.open(inside[0]))
    except (
        zipfile.BadZipFile,
        RuntimeError,
        IndexError,
    ) as error:  # RuntimeError: encrypted, or packed in an unknown way; IndexError: an entry without a name
        raise zlib.error(str(error)) from None


def _aside(name: str) -> bool:
    """What macOS adds to archives."""
    return name.startswith("__MACOSX/") or Path(name).name.startswith(".")


_OPENERS = {".gz": _gz, ".zst": _zst, ".zip": _zip}
