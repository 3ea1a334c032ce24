"""Files of numbers: ``.npy``, ``.npz``, IDX (as digits are often handed out) and CSV, none of which can run code."""

from __future__ import annotations

import csv
import io
import math
import re
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from anaphora.data.numeric import is_number
from anaphora.errors import DataError
from anaphora.files import read_bytes, streamed
from anaphora.files.arrays import Numbers, load_npy, load_npz
from anaphora.files.unpacking import packed_ending, pieces, unpacked

ENDINGS = (".npy", ".csv")
"""Endings of files that hold one sequence."""
_IDX = re.compile(r"(idx\d-ubyte|\.idx)(\.gz|\.bz2|\.xz)?$")
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def is_array_file(path: str | Path) -> bool:
    """Whether a file holds an array of many sequences."""
    return Path(path).name.lower().endswith((".npz", ".npy")) or is_idx(path)


def is_idx(path: str | Path) -> bool:
    """Whether a file begins like IDX: two zero bytes, a type, at most eight dimensions; or at least is called so."""
    try:
        head = next(pieces(path), b"")[:4] if packed_ending(path) else _head(path)
    except (OSError, EOFError, zlib.error):
        head = b""
    known = len(head) == 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES and 1 <= head[3] <= 8
    return known or _IDX.search(Path(path).name.lower()) is not None


def _head(path: str | Path) -> bytes:
    with streamed(path) as file:
        return file.read(4)


def read_array(path: Path) -> Numbers:
    """The array of an ``.npy`` or IDX file, or of what a text file has one of per line."""
    name = path.name.lower()
    if name.endswith(".npy"):
        return _read_npy(path)
    if is_idx(path):
        return _read_idx(path)
    text = whole_bytes(path).decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    return np.array(text.removesuffix("\n").split("\n"))


def read_arrays(path: Path) -> dict[str, Numbers]:
    """The arrays of an ``.npz`` file by name."""
    try:
        return load_npz(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, error, "an .npz file of plain arrays") from None


def read_numbers(path: Path) -> Numbers:
    """One sequence: an ``.npy`` file, or a CSV with a step per line (a first line of names is passed over)."""
    if path.suffix.lower() == ".npy":
        return _read_npy(path)
    try:
        text = whole_bytes(path).decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error, "a CSV file of numbers") from None
    if rows and not any(is_number(cell) for cell in rows[0]):
        rows = rows[1:]
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{path}: row {number} of numbers has {len(row)} columns where the first has {len(rows[0])}; "
                "all must have the same."
            )
        for cell in row:
            if not is_number(cell):
                raise DataError(
                    f"{path}: row {number} of numbers holds {cell[:20]!r}, which is no number; correct it."
                )
    return np.array(rows, dtype=np.float32).reshape(len(rows), -1)


def _read_npy(path: Path) -> Numbers:
    try:
        return load_npy(path)
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, error, "an .npy file of plain numbers") from None


def _read_idx(path: Path) -> Numbers:
    """Two zero bytes, a type, the number of dimensions, their sizes (big-endian), the values."""
    data = whole_bytes(path)
    kind, dimensions = (data[2], data[3]) if len(data) >= 4 else (0, 0)
    head = 4 + 4 * dimensions
    if data[:2] != b"\0\0" or kind not in _IDX_TYPES or dimensions == 0 or len(data) < head:
        raise DataError(f"{path} is not an IDX file; give one with its usual head, or .npy.")
    shape = struct.unpack(f">{dimensions}I", data[4:head])
    kept = np.dtype(_IDX_TYPES[kind])
    if math.prod(shape) * kept.itemsize != len(data) - head:
        raise DataError(f"{path} is damaged: its head promises {shape} values; make it again.")
    return np.frombuffer(data, dtype=kept, offset=head).reshape(shape)


def whole_bytes(path: Path) -> bytes:
    """All bytes of a file, of what is inside for packed ones."""
    try:
        return unpacked(path) if packed_ending(path) else read_bytes(path)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error, "a whole file") from None


def _unreadable(path: Path, error: Exception, wanted: str) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: there is no such file; check the path.")
    if isinstance(error, DataError):
        return error
    reason = (
        (getattr(error, "strerror", None) or str(error) or "it ends too early").split("\n")[0].rstrip(".")
    )
    return DataError(f"{path} cannot be read ({reason}); give {wanted}.")
