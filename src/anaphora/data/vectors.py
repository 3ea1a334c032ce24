"""Labelled sequences of vectors: recordings, strokes, sensor readings, images read row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from anaphora.data.table import Column, HeldTable
from anaphora.errors import DataError

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
        raise DataError(f"{where} does not hold numbers in equal rows; give one vector per step.") from None
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
