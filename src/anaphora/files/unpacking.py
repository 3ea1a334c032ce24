"""Compressed files: unpacked piece by piece, and stopped where a file grows beyond its limits."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from anaphora.errors import DataError
from anaphora.files.bounds import SMALL, limits
from anaphora.files.opening import Refused, open_plain
from anaphora.files.writing import scratch_file

_CHUNK = 1 << 20
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Endings of files that are unpacked before they are read."""


def packed_ending(path: str | Path) -> str:
    """The one of `PACKED` that the name ends with, else nothing."""
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
    """What is inside a packed file (see `PACKED`; a ``.zip`` of one file), to be read piece by piece.

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
    with scratch_file(folder) as scratch:
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
    except OSError as error:
        if isinstance(inside, _Streams) and error.errno is None:  # as bz2 calls what it cannot read
            raise zlib.error(str(error)) from None
        raise
    except Exception as error:
        if type(error).__name__ in ("ZstdError", "LZMAError"):
            large = "limit exceeded" in str(error)
            raise zlib.error(f"it wants over {SMALL >> 20} MiB of memory" if large else str(error)) from None
        raise


def _gz(path: str | Path, raw: IO[bytes], stack: contextlib.ExitStack) -> Any:
    return stack.enter_context(gzip.open(raw, "rb"))


class _Streams:
    """What is inside a file of one compressed stream after another, each read by a decoder that ``make`` makes."""

    def __init__(self, raw: IO[bytes], make: Callable[[], Any]):
        self._raw, self._make, self._decoder = raw, make, make()

    def read(self, most: int) -> bytes:
        while True:
            given = b""
            if self._decoder.eof:
                # xz fills up to whole words with zeros between streams
                more = self._decoder.unused_data or self._raw.read(_CHUNK)
                while more and not (given := more.lstrip(b"\0")):
                    more = self._raw.read(_CHUNK)
                if not given:
                    return b""
                self._decoder = self._make()
            elif self._decoder.needs_input and not (given := self._raw.read(_CHUNK)):
                raise EOFError("it ends before what was packed does")
            if block := self._decoder.decompress(given, most):
                return bytes(block)


def _bz2(path: str | Path, raw: IO[bytes], stack: contextlib.ExitStack) -> Any:
    try:
        import bz2
    except ImportError:  # a Python that was built without it
        raise Refused(path, "this Python has no bz2; unpack it yourself", errno.EFBIG) from None
    return _Streams(raw, bz2.BZ2Decompressor)


def _xz(path: str | Path, raw: IO[bytes], stack: contextlib.ExitStack) -> Any:
    try:
        import lzma
    except ImportError:
        raise Refused(path, "this Python has no lzma; unpack it yourself", errno.EFBIG) from None
    # Its head names the memory it wants, up to 4 GiB; `xz -9` wants 65 MiB.
    return _Streams(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=SMALL))


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


_OPENERS = {".gz": _gz, ".bz2": _bz2, ".xz": _xz, ".zst": _zst, ".zip": _zip}
