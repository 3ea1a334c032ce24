"""Series from numpy arrays, ``.npy`` and ``.npz`` files, and piano rolls written as lists of notes."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.files import TextFile
from anaphora.data.series import Series, numbered
from anaphora.errors import DataError
from anaphora.files import parse_json
from anaphora.files.arrays import load_arrays

LOWEST, HIGHEST = 21, 108
"""The keys of a piano as MIDI numbers."""
ROLL_COLUMNS = tuple(f"note{number}" for number in range(LOWEST, HIGHEST + 1))


def as_given(found: list[Any], data: Any, *, flat: bool) -> Any:
    """What was ``found`` for each series of ``data``: a list for a list of series or an array of three axes, else the one there is; with
    ``flat`` its only column ``(time,)`` in place of ``(time, 1)``. A list of numbers, or of rows as mappings, is one series."""
    listed = isinstance(data, list | tuple) and not isinstance(data[0], int | float | np.number | Mapping)
    if len(found) > 1 or listed or (isinstance(data, np.ndarray) and data.ndim == 3):
        return found
    return found[0][:, 0] if flat and isinstance(found[0], np.ndarray) else found[0]


def from_python(data: Any) -> tuple[tuple[str, ...], list[Series]]:
    """Columns and series of an array (time,), (time, columns) or (series, time, columns), a list of arrays, or a
    mapping of names to columns."""
    if isinstance(data, Mapping):
        names = tuple(str(name) for name in data)
        columns = [_array(f"column {name}", column) for name, column in data.items()]
        if not columns or any(one.ndim != 1 or len(one) != len(columns[0]) for one in columns):
            raise DataError("a mapping must hold columns of numbers of one length.")
        return names, [Series("1", np.stack(columns, axis=1))]
    if isinstance(data, np.ndarray):
        arrays = list(data) if data.ndim == 3 else [data]
    elif isinstance(data, Iterable):
        arrays = list(data)
        if arrays and all(np.ndim(one) == 0 for one in arrays):
            arrays = [arrays]
    else:
        raise DataError(
            f"a {type(data).__name__} cannot be read as series; give a path, a corpus, an array or a list of arrays."
        )
    return _named([(str(number), one) for number, one in enumerate(arrays, start=1)], "the series")


def read_arrays(path: str | Path) -> tuple[tuple[str, ...], list[Series]]:
    """A ``.npy`` of one array, or a ``.npz`` of several series by name. Nothing pickled is ever loaded."""
    try:
        held = load_arrays(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; check the path.") from None
    except (ValueError, EOFError) as error:
        reason = (str(error) or "it ends too early").splitlines()[0]
        raise DataError(f"{path}: cannot be read as arrays of numbers ({reason}).") from None
    except (zipfile.BadZipFile, zlib.error):
        raise DataError(f"{path}: is damaged and cannot be unpacked; make it again.") from None
    if isinstance(held, dict):
        return _named(list(held.items()), str(path))
    arrays = list(held) if held.ndim == 3 else [held]
    return _named([(str(number), one) for number, one in enumerate(arrays, start=1)], str(path))


def read_rolls(path: str | Path, split: str) -> tuple[tuple[str, ...], list[Series], list[str]]:
    """Pieces of music from JSON ``{"train": [[[60, 64], …], …], "valid": …}``: for each split a list of pieces, each a
    list of steps, each a list of the MIDI numbers that sound. Columns are the 88 keys of a piano, 1 where one sounds.

    Returns the columns, the pieces of ``split`` (where there is none of that name, of the last there is) and the splits.
    """
    file = TextFile(path)
    try:
        splits = parse_json(file.whole())
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise DataError(
            f"{path}: is not JSON ({reason}); give {{split: pieces of steps of notes}}."
        ) from None
    if not isinstance(splits, dict) or not splits:
        raise DataError(f"{path}: is not a set of music; give JSON {{split: pieces of steps of notes}}.")
    names = {"dev": ("valid", "dev"), "test": ("test", "valid", "dev")}.get(split, (split,))
    chosen = next((name for name in names if name in splits), None)
    if chosen is None:
        raise DataError(f"{path}: has no split {names[0]}; it has {', '.join(splits)}.")
    if not isinstance(splits[chosen], list):
        raise DataError(
            f"{path}: the split {chosen} is not a list of pieces; give {{split: pieces of steps of notes}}."
        )
    pieces = [_roll(path, chosen, number, piece) for number, piece in enumerate(splits[chosen], start=1)]
    if not pieces:
        raise DataError(f"{path}: the split {chosen} is empty; give at least one piece.")
    return ROLL_COLUMNS, pieces, list(splits)


def _roll(path: str | Path, split: str, number: int, piece: Any) -> Series:
    roll = np.zeros((len(piece) if isinstance(piece, list) else 0, len(ROLL_COLUMNS)))
    try:
        for step, notes in enumerate(piece):
            if any(type(note) is not int for note in notes):
                raise TypeError("not a whole number")
            keys = np.asarray(notes, dtype=np.int64) - LOWEST
            if ((keys < 0) | (keys > HIGHEST - LOWEST)).any():
                raise DataError(
                    f"{path}: piece {number} of {split} has a note outside {LOWEST} … {HIGHEST} at step {step + 1}."
                )
            roll[step, keys] = 1.0
    except (TypeError, ValueError):
        raise DataError(
            f"{path}: piece {number} of {split} is not a list of steps, each a list of MIDI numbers."
        ) from None
    return Series(f"{split} {number}", roll)


def _named(parts: list[tuple[str, Any]], where: str) -> tuple[tuple[str, ...], list[Series]]:
    found = []
    for name, part in parts:
        array = _array(f"{where}: series {name}", part)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or 0 in array.shape:
            raise DataError(
                f"{where}: series {name} is {np.shape(part)}; give (time, columns), neither of them empty."
            )
        if np.isinf(array).any():
            raise DataError(f"{where}: series {name} holds an infinity; mark missing values with NaN.")
        found.append(Series(name, array))
    if not found:
        raise DataError(f"{where}: there is none; give at least one array.")
    widths = {one.values.shape[1] for one in found}
    if len(widths) > 1:
        raise DataError(
            f"{where}: have {min(widths)} to {max(widths)} columns; give all of them the same columns."
        )
    return numbered(widths.pop()), found


def _array(name: str, value: Any) -> np.ndarray:
    try:
        if np.asarray(value).dtype.kind == "c":
            raise TypeError("complex numbers")
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(
            f"{name} is not an array of numbers; give numbers, with NaN where one is missing."
        ) from None
