"""Vectors in the files that word2vec, gensim and GloVe exchange: text or binary, plain or packed.

text:    V d ⏎   then V lines   word x₁ … x_d          (GloVe: without the first line)
binary:  V d ⏎   then V times   word ␣ d float32, little-endian (word2vec itself adds ⏎)
"""

from __future__ import annotations

import contextlib
import gzip
import re
import warnings
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from anaphora.errors import DataError
from anaphora.files import clause, streamed
from anaphora.files.unpacking import check_unpacked, packed_ending, unpacking
from anaphora.files.writing import replacing

Array = np.ndarray[Any, Any]
Wanted = frozenset[str] | None

BLOCK = 1 << 20
LONGEST_WORD = 1 << 16
_NOT_FINITE = "holds a number that is not finite; leave that word out"


def write(path: str | Path, words: Iterable[str], matrix: Array, *, binary: bool | None = None) -> None:
    """Write ``matrix (V, d)`` in one step: what was at ``path`` is replaced whole or not at all.

    Text is exact: each number has as many digits as it takes to read the same float32 back.
    """
    path = Path(path)
    plain = path.name.removesuffix(".gz")
    check_unpacked(path.with_name(plain))
    binary = plain.endswith(".bin") if binary is None else binary
    rows = np.asarray(matrix, dtype="<f4")
    try:
        with replacing(path) as raw, contextlib.ExitStack() as packing:
            file: IO[bytes] | gzip.GzipFile = raw
            if (
                plain != path.name
            ):  # neither a name nor a time in the head: the same vectors give the same bytes
                file = packing.enter_context(gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
            file.write(f"{len(rows)} {rows.shape[1]}\n".encode())
            for word, row in zip(words, rows, strict=True):
                file.write(_line(path, word, row, binary))
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({clause(error)}).") from error


def _line(path: Path, word: str, row: Array, binary: bool) -> bytes:
    if not word or re.search(r"\s", word):
        raise DataError(
            f"{path}: the word {word!r} has white space in it, which the format cannot hold; use save."
        )
    try:
        spelling = word.encode()
    except UnicodeEncodeError:
        raise DataError(f"{path}: the word {word!r} cannot be written as UTF-8; leave it out.") from None
    if binary:
        return spelling + b" " + row.tobytes()
    return spelling + b" " + " ".join(map(str, row)).encode() + b"\n"


def read(path: str | Path, only: Wanted = None) -> tuple[list[str], Array]:
    """Words and their vectors ``(V, d)``, in the order of the file; with ``only``, those words alone."""
    path = Path(path)
    try:
        with unpacking(path) if packed_ending(path) else streamed(path) as opened:
            found = _read(path, opened, only)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged and cannot be unpacked ({error}); use another copy.") from None
    except OSError as error:
        reason = clause(error)
        raise DataError(f"{path} cannot be read: {reason}; check the path.") from None
    if not found:
        lacks = "none of the requested words" if only is not None else "no vector"
        raise DataError(f"{path} holds {lacks}; check that it is the right file.")
    return list(found), np.stack(list(found.values()))


def _read(path: Path, file: BinaryIO, only: Wanted) -> dict[str, Array]:
    head = file.readline(BLOCK)
    numbers = re.fullmatch(rb"\s*(\d{1,18})\s+(\d{1,9})\s*", head)
    if numbers is None:
        return _read_text(path, file, head, 1, len(head.split()) - 1, None, only)
    count, width = int(numbers[1]), int(numbers[2])
    if not 0 < width <= 1 << 20:
        raise DataError(f"{path}:1: vectors of {width} numbers cannot be; use another copy.")
    first = file.readline(BLOCK)
    if _is_text(first):
        return _read_text(path, file, first, 2, width, count, only)
    return _read_binary(path, file, first, count, width, only)


def _is_text(line: bytes) -> bool:
    """Whether the first line after the head spells its numbers, rather than holding four bytes of each."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return False
    fields = text.split()
    if len(fields) == 1 or any(c < " " and c not in "\t\r\n" for c in text):
        return False
    return not fields or re.fullmatch(r"[-+.0-9eEnaifNAIF]+", fields[-1]) is not None


def _read_text(
    path: Path, file: BinaryIO, line: bytes, number: int, width: int, count: int | None, only: Wanted
) -> dict[str, Array]:
    found: dict[str, Array] = {}
    if width < 1:
        raise DataError(
            f"{path}: not a file of word vectors; its first line is neither V d nor a word and numbers."
        )
    lines = 0
    while line:
        if line.strip():
            lines += 1
            fields = line.rstrip().rsplit(None, width)
            where = f"{path}:{number}"
            if len(fields) != width + 1 or len(line) >= BLOCK * 8:
                raise DataError(f"{where}: {len(fields) - 1} numbers where {width} belong; correct the line.")
            _enter(found, where, fields[0], b" ".join(fields[1:]), width, only)
        line, number = file.readline(BLOCK * 8), number + 1
    if count is not None and lines != count:
        raise DataError(
            f"{path}: its first line promises {count} vectors, but there are {lines}; use another copy."
        )
    return found


def _enter(
    found: dict[str, Array], where: str, spelling: bytes, numbers: bytes, width: int, only: Wanted
) -> None:
    word = _word(spelling, where)
    if only is not None and word not in only:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what numpy says of a text that is no number
        try:
            row = np.fromstring(numbers, dtype=np.float32, sep=" ")
        except ValueError:
            row = np.zeros(0, np.float32)
    if len(row) != width:
        raise DataError(f"{where}: not {width} numbers after the word {word!r}; correct the line.")
    _keep(found, where, word, row)


def _read_binary(
    path: Path, file: BinaryIO, data: bytes, count: int, width: int, only: Wanted
) -> dict[str, Array]:
    found: dict[str, Array] = {}
    size, place = 4 * width, 0
    for index in range(count):
        where = f"{path}, vector {index + 1}"
        while (space := data.find(b" ", place)) < 0 or len(data) - space - 1 < size:
            block = file.read(max(BLOCK, size))
            if not block:
                raise DataError(f"{path}: ends after {index} of {count} vectors; use another copy.")
            if space < 0 and len(data) - place > LONGEST_WORD:
                raise DataError(f"{where}: no word where one belongs; use another copy.")
            data, place = data[place:] + block, 0
        word = _word(data[place:space].lstrip(b"\n"), where)
        place = space + 1 + size
        if only is None or word in only:
            _keep(found, where, word, np.frombuffer(data, "<f4", width, space + 1).astype(np.float32))
    if data[place:].strip() or file.read(BLOCK).strip():
        raise DataError(f"{path}: goes on after its {count} vectors; use another copy.")
    return found


def _word(spelling: bytes, where: str) -> str:
    try:
        return spelling.decode()
    except UnicodeDecodeError:
        raise DataError(f"{where}: a word in broken UTF-8; use another copy.") from None


def _keep(found: dict[str, Array], where: str, word: str, row: Array) -> None:
    if not np.isfinite(row).all():
        raise DataError(f"{where}: the vector of {word!r} {_NOT_FINITE}.")
    if word in found:
        raise DataError(f"{where}: the word {word!r} is there twice; leave one out.")
    found[word] = row
