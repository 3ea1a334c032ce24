"""``.npy`` and ``.npz`` files: heads are read and bounded before any array is made, and nothing pickled is loaded."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from anaphora.files.bounds import human, limits
from anaphora.files.opening import Refused, open_plain

Numbers = np.ndarray[Any, Any]
MOST_ARRAYS = 100_000
"""Entries of one ``.npz`` file."""
LONGEST_HEADER = 1 << 23
"""Bytes of the header of a safetensors file: names, types and shapes of some 80,000 arrays."""
MOST_AXES = 64
"""Of one array: numpy knows no more."""
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def load_npy(path: str | Path) -> Numbers:
    """The array of a file; ``ValueError`` or ``OSError`` (`Refused`) where it cannot be used."""
    with os.fdopen(open_plain(path), "rb") as file:
        return _array(path, file, os.fstat(file.fileno()).st_size)


def load_npz(path: str | Path) -> dict[str, Numbers]:
    """The arrays of an archive by name, read only after the sizes that its directory names were found in bounds."""
    with os.fdopen(open_plain(path), "rb") as file:
        packed = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
                _check(path, entries, packed)
                found = {}
                for entry in entries:
                    with archive.open(entry) as inside:
                        found[entry.filename.removesuffix(".npy")] = _array(path, inside, entry.file_size)
                return found
        except RuntimeError as error:  # encrypted, or (NotImplementedError) packed as zipfile does not know
            raise ValueError(str(error)) from None


def load_arrays(path: str | Path) -> Numbers | dict[str, Numbers]:
    """One array or several, as the first bytes say."""
    with os.fdopen(open_plain(path), "rb") as file:
        packed = file.read(4) == b"PK\x03\x04"
    return load_npz(path) if packed else load_npy(path)


def check_header(data: bytes) -> None:
    """Raise ``ValueError`` where the header of a safetensors file is longer than any that is read, or than the file."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise ValueError("cut off within its header")
    if size > LONGEST_HEADER:
        raise ValueError(f"its header has {human(size)}, and at most {human(LONGEST_HEADER)} are read")


def numbers_of(shape: Sequence[int], name: str) -> int:
    """Return how many numbers an array of ``shape`` has; ``ValueError`` for a shape of none, or of more than any file has.

    The product is not taken further than that: that of very many large sizes has millions of digits.
    """
    if len(shape) > MOST_AXES:
        raise ValueError(f"{name[:80]} has {len(shape)} axes, and at most {MOST_AXES} are read")
    for length in shape:
        if not 0 <= length < 1 << 63:
            raise ValueError(f"the shape of {name[:80]} has an axis of the length {str(length)[:40]}")
    count = 0 if 0 in shape else 1
    for length in shape if count else ():
        count *= length
        if count >= 1 << 63:
            raise ValueError(f"the shape of {name[:80]} promises more numbers than any file has")
    return count


def _check(path: str | Path, entries: list[zipfile.ZipInfo], packed: int) -> None:
    if len(entries) > MOST_ARRAYS:
        raise Refused(path, f"it holds {len(entries)} arrays, more than {MOST_ARRAYS}", errno.EFBIG)
    if len({entry.filename for entry in entries}) < len(entries):
        raise ValueError("two of its arrays have the same name")
    # Entries may lie over each other, so their packed sizes prove nothing: the sum is compared with the whole file.
    if reason := limits().excess(sum(entry.file_size for entry in entries), packed):
        raise Refused(path, reason, errno.EFBIG)


def _array(path: str | Path, file: IO[bytes], size: int) -> Numbers:
    """An array of which the file (or archive entry) of ``size`` bytes must hold every element that its head names."""
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"its format is {version[0]}.{version[1]}, and 1.0 and 2.0 are read")
    try:
        shape, fortran, dtype = _HEADERS[version](file)
    except (
        SyntaxError,
        TokenError,
        TypeError,
        MemoryError,
        RecursionError,
    ):  # what evaluating a damaged head raises
        raise ValueError("its head cannot be read") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    count, there = numbers_of(shape, "an array"), size - file.tell()
    wanted = count * dtype.itemsize
    if wanted > there:
        raise ValueError(f"its head promises {human(wanted)} and the file has {human(there)}")
    if reason := limits().excess(wanted):
        raise Refused(path, reason, errno.EFBIG)
    if dtype.itemsize == 0:
        if count > size:
            raise ValueError("its elements are empty")
        return np.zeros(shape, dtype)
    content = bytearray(wanted)
    filled = 0
    for block in _blocks(file, wanted):
        content[filled : filled + len(block)] = block
        filled += len(block)
    if filled < wanted:
        raise ValueError("it ends too early")
    flat = np.frombuffer(content, dtype)
    return flat.reshape(shape[::-1]).transpose() if fortran else flat.reshape(shape)


def _blocks(file: IO[bytes], wanted: int) -> Iterator[bytes]:
    while wanted > 0 and (block := file.read(min(wanted, io.DEFAULT_BUFFER_SIZE << 7))):
        wanted -= len(block)
        yield block
