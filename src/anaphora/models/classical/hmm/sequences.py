"""What a hidden Markov model is fed: sequences of different lengths, laid end to end, and labels beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import DataError

Array = NDArray[Any]


@dataclass(frozen=True)
class Steps:
    """All steps of all sequences: ``x`` (N,) or (N, D), ``bounds`` (S+1,), and whether one sequence was given."""

    x: Array
    bounds: NDArray[np.int64]
    single: bool

    def split(self, values: Array) -> Any:
        """Rows of ``values`` (N, …) per sequence, as the sequences came: one array or a list of them."""
        parts = [values[a:b] for a, b in zip(self.bounds[:-1], self.bounds[1:], strict=True)]
        return parts[0] if self.single else parts

    def __len__(self) -> int:
        return len(self.bounds) - 1


def read_symbols(data: Any, symbols: int | None) -> Steps:
    """Integers 0 … symbols−1 per step; −1 or NaN is a missing one."""
    arrays, single = _arrays(data, axes=1)
    parts = []
    for where, array in _named(arrays, single):
        if array.ndim != 1:
            raise DataError(
                f"{where} has shape {array.shape}; give one symbol number per step, shape (time,)."
            )
        if array.dtype.kind in "iu" and array.min() >= -1 and array.max() < (symbols or np.inf):
            parts.append(array.astype(np.int64))
        else:
            parts.append(_symbols(where, array, symbols))
    return _joined(parts, single)


def _symbols(where: str, array: Array, symbols: int | None) -> Array:
    """Whole numbers from whatever was given, or what is wrong with it."""
    try:
        values = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{where} holds something that is not a number; give symbol numbers.") from None
    values = np.where(np.isnan(values), -1.0, values)
    bad = np.flatnonzero((values != np.floor(values)) | (values < -1) | (values >= (symbols or np.inf)))
    if bad.size:
        limit = f"0 to {symbols - 1}" if symbols else "0 or more"
        raise DataError(
            f"{where}: {array[bad[0]]} at step {bad[0]} is not a symbol; use whole numbers, {limit}, "
            "and -1 for a missing one."
        )
    return values.astype(np.int64)


def read_vectors(data: Any, width: int | None) -> Steps:
    """Float vectors (time, D) per sequence, or (time,) for D = 1; NaN entries are missing."""
    arrays, single = _arrays(data, axes=2)
    parts: list[Array] = []
    for where, array in _named(arrays, single):
        try:
            values = np.asarray(array, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"{where} holds something that is not a number; give vectors of floats."
            ) from None
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2:
            raise DataError(f"{where} has shape {values.shape}; give (time, features).")
        expected = width or (parts[0].shape[1] if parts else values.shape[1])
        if values.shape[1] != expected or expected == 0:
            raise DataError(
                f"{where} has {values.shape[1]} features per step where {max(expected, 1)} are expected."
            )
        if np.isinf(values).any():
            raise DataError(f"{where} holds an infinite value; use NaN where a value is missing.")
        parts.append(values)
    return _joined(parts, single)


def read_labels(labels: Any, steps: Steps, states: int) -> NDArray[np.int64]:
    """Known states per step (N,), −1 where unknown; as many and as long as the sequences."""
    given, _ = _arrays(labels, axes=1)
    lengths = np.diff(steps.bounds)
    if len(given) != len(steps):
        raise DataError(f"there are {len(given)} sequences of labels for {len(steps)} sequences of data.")
    for index, (row, length) in enumerate(zip(given, lengths, strict=True)):
        if row.shape != (length,):
            raise DataError(
                f"the labels of sequence {index} have shape {row.shape} where its {length} steps need ({length},)."
            )
        if row.dtype.kind not in "iu":
            raise DataError(f"the labels of sequence {index} are not whole numbers; -1 is an unknown one.")
        if row.min() < -1 or row.max() >= states:
            raise DataError(
                f"the labels of sequence {index} must be states 0 to {states - 1}, or -1 where unknown; "
                f"found {row.min() if row.min() < -1 else row.max()}."
            )
    return np.concatenate(given).astype(np.int64)


def _arrays(data: Any, axes: int) -> tuple[list[Array], bool]:
    """The sequences, and whether ``data`` was one sequence rather than several.

    A list is several sequences unless its items are single numbers; an array is one sequence unless it has one
    axis more than a sequence has.
    """
    if isinstance(data, str | bytes):
        raise DataError("text is not a sequence of numbers; number its symbols first.")
    if isinstance(data, np.ndarray) or not isinstance(data, Sequence):
        array = np.asarray(data)
        if array.ndim == 0:
            raise DataError("a sequence is expected, not a single value; give an array or a list of arrays.")
        several = array.ndim > axes
        return (list(array), False) if several else ([array], True)
    if not data:
        raise DataError("there are no sequences; give at least one.")
    try:
        arrays = [np.asarray(item) for item in data]
    except ValueError:
        raise DataError("a sequence has steps of different widths; give (time, features) arrays.") from None
    if all(array.ndim == 0 for array in arrays):
        return [np.asarray(data)], True
    return arrays, False


def _named(arrays: list[Array], single: bool) -> list[tuple[str, Array]]:
    named = [("the sequence" if single else f"sequence {i}", a) for i, a in enumerate(arrays)]
    for where, array in named:
        if array.size == 0 or array.ndim == 0:
            raise DataError(f"{where} is empty; leave it out.")
    return named


def _joined(parts: list[Array], single: bool) -> Steps:
    bounds = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    return Steps(np.ascontiguousarray(np.concatenate(parts)), bounds, single)
