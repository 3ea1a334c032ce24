"""Compressed files: unpacked piece by piece, and stopped where a file grows beyond its limits."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from anaphora.files.bounds import limits
from anaphora.files.opening import Refused, open_plain

_CHUNK = 1 << 20
PACKED = (".gz", ".zst", ".zip")
"""Endings of files that are unpacked before they are read."""


def packed_ending(path: str | Path) -> str:
    """``.gz``, ``.zst`` or ``.zip`` where the name ends so, else nothing."""
    return next((ending for ending in PACKED if str(path).lower().endswith(ending)), "")


def pieces(path: str | Path) -> Iterator[bytes]:
    """What is inside a ``.gz``, ``.zst`` or ``.zip`` file (of one file). Raises `Refused` where it unpacks to too much,
    ``EOFError``, ``zlib.error`` or ``gzip.BadGzipFile`` where it is damaged."""
    with os.fdopen(open_plain(path), "rb") as raw, contextlib.ExitStack() as stack:
        inside = _OPENERS[packed_ending(path) or ".gz"](path, raw, stack)
        packed, bound, found = os.fstat(raw.fileno()).st_size, limits(), 0
        while block := _read(inside):
            found += len(block)
            if reason := bound.excess(found, packed):
                raise Refused(path, reason, errno.EFBIG)
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


def _read(inside: IO[bytes]) -> bytes:
    try:
        return inside.read(_CHUNK)
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
    ) as error:  # RuntimeError: encrypted, or packed in an unknown way
        raise zlib.error(str(error)) from None


def _aside(name: str) -> bool:
    """What macOS adds to archives."""
    return name.startswith("__MACOSX/") or Path(name).name.startswith(".")


_OPENERS = {".gz": _gz, ".zst": _zst, ".zip": _zip}
