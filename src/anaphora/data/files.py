"""A text file that stays on disk: opened once, fingerprinted while it is scanned, read at any place."""

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
from pathlib import Path
from typing import BinaryIO

from anaphora.errors import DataError
from anaphora.files import Refused, limits, open_plain
from anaphora.files.unpacking import packed_ending, unpacked_to_disk, written_to_disk

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
