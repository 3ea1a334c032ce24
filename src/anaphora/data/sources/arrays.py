"""Sequences of vectors: checked arrays, and the files of numbers that hold them (.npy, .npz, IDX, CSV, .ts)."""

from __future__ import annotations

import csv
import io
import math
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.files import Verdict
from anaphora.data.numeric import is_number
from anaphora.data.table import Column, HeldTable
from anaphora.errors import DataError, SettingsError
from anaphora.files import read_bytes, streamed
from anaphora.files.arrays import Numbers, load_npy, load_npz
from anaphora.files.unpacking import packed_ending, pieces, unpacked
from anaphora.settings.own import Part

# Labelled sequences of vectors: recordings, strokes, sensor readings, images read row by row.

ANY_SIZE = "pictures"
"""How pictures are read that a model brings to one size itself: as ``picture``, but they may differ in it."""
Array = np.ndarray[Any, np.dtype[np.float32]]
"""One sequence, ``(time, features)``, or one picture, ``(rows, columns, channels)``."""


SEQUENCES = (Column("input", "array"), Column("label", "label", "target"))


def labelled_sequences(sequences: Sequence[Array], labels: Sequence[str], facts: dict[str, Any]) -> HeldTable:
    """Return sequences ``(time, features)``, all with the same features, or pictures, with a label each, as a table."""
    return HeldTable(list(zip(sequences, labels, strict=True)), facts, SEQUENCES)


def as_sequence(value: Any, where: str, *, scan: str = "rows") -> Array:
    """``value`` as float32 ``(time, features)``, or with ``scan = "picture"`` ``(rows, columns, channels)``; or a
    `DataError` that begins with ``where``.

    One dimension is a sequence of single numbers. Two are rows over time, or an image; three an image with colours,
    ``(rows, columns, colours)``. ``scan = "pixels"`` makes every element of the first two dimensions a step.
    """
    try:
        x = np.asarray(value)
        if x.dtype.kind == "c":
            raise DataError(
                f"{where} holds complex numbers; give their real and imaginary parts as two features."
            )
        with np.errstate(over="ignore"):  # what becomes infinite is refused below
            x = x.astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        what = (
            f"is a {type(value).__name__}"
            if isinstance(value, bytes) or not hasattr(value, "__len__")
            else "does not hold numbers in equal rows"
        )
        raise DataError(f"{where} {what}; give a text, or one vector of numbers per step.") from None
    picture = scan in ("picture", ANY_SIZE)
    if picture and (x.ndim not in (2, 3) or 0 in x.shape):
        raise DataError(
            f"{where} has the shape {x.shape}; a picture has (rows, columns) or (rows, columns, channels)."
        )
    if not 1 <= x.ndim <= 3 or 0 in x.shape:
        raise DataError(
            f"{where} has the shape {x.shape}; a sequence has (time, features) with at least one step."
        )
    if not np.isfinite(x).all():
        step = int(np.argwhere(~np.isfinite(x))[0][0]) + 1
        place = "row" if picture else "step"
        raise DataError(f"{where} holds NaN or infinity ({place} {step}); clean the data.")
    if picture:
        return x if x.ndim == 3 else x[:, :, None]
    if x.ndim == 1:
        x = x[:, None]
    if x.ndim == 3:
        return x.reshape(-1, x.shape[2]) if scan == "pixels" else x.reshape(x.shape[0], -1)
    return x.reshape(-1, 1) if scan == "pixels" else x


def gather(
    sequences: list[Array],
    labels: list[str],
    where: str,
    facts: dict[str, Any],
    *,
    names: Sequence[str] = (),
    bad_rows: str = "strict",
) -> HeldTable:
    """The rows together, when there is one at least and all have the same features, or are pictures of one size.

    ``names``: what each is called where it differs from most. With ``bad_rows`` = "skip" those are left out and counted.
    """
    if not sequences:
        raise DataError(f"{where} holds no sequence; give at least one.")
    if facts.get("scan") == ANY_SIZE:
        return labelled_sequences(sequences, labels, facts)
    shapes = [x.shape if x.ndim == 3 else x.shape[1:] for x in sequences]
    usual = Counter(shapes).most_common(1)[0][0] if names else shapes[0]
    odd = [place for place, shape in enumerate(shapes) if shape != usual]
    if odd and bad_rows != "skip":
        name = names[odd[0]] if names else f"{'picture' if len(usual) == 3 else 'sequence'} {odd[0] + 1}"
        other = "most have" if names else "the first has"
        if len(usual) == 3:
            found = (
                f"{picture_size(shapes[odd[0]])} where {other} {picture_size(usual)}; bring all to one size"
            )
        else:
            found = f"{shapes[odd[0]][0]} features where {other} {usual[0]}; all must have the same"
        skip = ", or leave such out (--skip-bad)" if names else ""
        raise DataError(f"{where}: {name} has {found}{skip}.")
    if odd:
        left = set(odd)
        kept = [place for place in range(len(sequences)) if place not in left]
        sequences, labels = [sequences[i] for i in kept], [labels[i] for i in kept]
        skipped = {**facts.get("skipped", {}), "another size than most": len(odd)}
        facts = {**facts, "skipped": skipped}
    return labelled_sequences(sequences, labels, facts)


def picture_size(shape: Sequence[int]) -> str:
    """``(28, 28, 1)`` in words."""
    rows, columns, channels = shape
    return f"{rows} rows, {columns} columns and {channels} channel{'s' if channels != 1 else ''}"


# Files of numbers: ``.npy``, ``.npz``, IDX (as digits are often handed out) and CSV, none of which can run code.

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


# ``.ts`` files, in which the archives of UCR and UEA hand out labelled series (also written by aeon and sktime).


def is_ts(path: str | Path) -> bool:
    """Whether a file is called so, packed or not."""
    return ".ts" in [ending.lower() for ending in Path(path).suffixes[-2:]]


def read_ts(path: Path, *, bad_rows: str = "strict", labelled: bool = True) -> HeldTable:
    """The series of a ``.ts`` file as sequences ``(time, features)`` with their labels.

    After a head (``@classLabel true a b``) and ``@data`` a line holds one series: the values of each feature with commas between them, features
    and at last the label with colons between them. Where the head says that there are no labels, they are empty, unless ``labelled``.

    Raises a `DataError` for a file without ``@data``, with times beside the values, or, unless ``bad_rows`` is ``skip``, with a row that cannot
    be used: a value that is missing or no number, features of different lengths, no label.
    """
    try:
        lines = whole_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; give a .ts file as it was handed out.") from None
    head, rows = _parts(path, lines)
    if head.get("timestamps") == "true":
        raise DataError(
            f"{path} holds times beside its values (@timeStamps true), which are not read; write the values alone."
        )
    given = "true" in (head.get("classlabel", "true"), head.get("targetlabel", "false"))
    if labelled and not given:
        raise DataError(f"{path} has no labels (@classLabel false); give a file that has them.")
    verdict = Verdict(str(path), bad_rows)
    sequences: list[Array] = []
    labels: list[str] = []
    for number, line in rows:
        try:
            values, label = _row(line, given)
            sequences.append(as_sequence(values, "the series"))
            labels.append(label)
        except DataError as error:
            verdict.reject(number, str(error).partition(";")[0].removesuffix("."))
    verdict.require(len(sequences))
    facts: dict[str, Any] = {
        "kind": "vectors",
        "form": "ts",
        "path": os.path.abspath(path),
        "bad_rows": bad_rows,
    }
    facts |= {"skipped": dict(verdict.skipped)} if verdict.skipped else {}
    return gather(sequences, labels, str(path), facts)


def _parts(path: Path, lines: list[str]) -> tuple[dict[str, str], Iterator[tuple[int, str]]]:
    """The first word after each name of the head, and the lines after ``@data`` with their numbers."""
    head: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        plain = line.strip()
        if not plain or plain.startswith(("#", "%")):
            continue
        if not plain.startswith("@"):
            break
        name, *words = plain[1:].split() or [""]
        if name.lower() == "data":
            return head, ((i, row) for i, row in enumerate(lines[number:], start=number + 1) if row.strip())
        head[name.lower()] = words[0].lower() if words else ""
    raise DataError(f"{path} has no line @data after its head; give a .ts file as it was handed out.")


def _row(line: str, labelled: bool) -> tuple[Array, str]:
    *parts, label = [*line.strip().split(":"), *([] if labelled else [""])]
    if labelled and (not parts or not label.strip()):
        raise DataError("a row without a label at its end, after a colon")
    features = [part.split(",") for part in parts]
    if len({len(one) for one in features}) > 1:
        raise DataError("features of different lengths")
    try:
        values = np.array(features, dtype=np.float32).T
    except ValueError:
        odd = next(cell.strip() for one in features for cell in one if not is_number(cell))
        what = "a missing value" if odd in ("?", "") else f"{odd[:20]!r}, which is no number"
        raise DataError(what) from None
    return values, label.strip()


# Features of the user's own: a function of samples and their rate, or of one sequence of vectors, that makes frames.

TRIAL = 4  # seconds of a tone that a function of sound is tried with


def own_frames(part: Part, name: str, *given: Any) -> Array:
    """What the user's function makes of one input called ``name``: frames ``(time, width)``."""
    try:
        found = np.asarray(part.made()(*given), dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise SettingsError([f"features = {part} failed on {name} ({error})."]) from error
    if found.ndim != 2 or 0 in found.shape:
        raise SettingsError(
            [f"features = {part} must make an array (time, width), but made {found.shape} of {name}."]
        )
    if not np.isfinite(found).all():
        raise DataError(f"features = {part} made a number that is not finite of {name}; mend one of the two.")
    return found


class OwnFeatures:
    """Frames of sound by a function of ``(samples (n,), rate)``.

    rate: samples per second that the function gets. width: numbers in a frame.
    """

    def __init__(self, part: Part, rate: int, hop: float):
        self._part, self.rate = part, rate
        tone = 0.1 * np.sin(2 * np.pi * 440 / rate * np.arange(TRIAL * rate)).astype(np.float32)
        frames = self.of(tone, f"{TRIAL} s of a tone")
        self.width = int(frames.shape[1])
        if abs(len(frames) * hop / TRIAL - 1) > 0.1:  # a window at the end may be missing
            raise SettingsError(
                [
                    f"features = {part} makes {len(frames)} frames of {TRIAL} s, one in {TRIAL / len(frames):.3g} s, but hop = "
                    f"{hop:g}, by which the times of words are computed: set hop = {TRIAL / len(frames):.3g}."
                ]
            )

    def of(self, wave: Array, name: str = "a recording") -> Array:
        """The frames ``(time, width)`` of one sound ``(n,)``."""
        return own_frames(self._part, name, wave, self.rate)


def of_vectors(features: Any) -> Callable[[Array, str], Array] | None:
    """The setting ``features`` of a classifier as a function of an array and its name; None where there is none."""
    if not isinstance(features, Part):
        return None
    return lambda x, name: own_frames(features, name, x)
