"""Pictures of any size as a published model saw them: scaled as Pillow does, bit for bit, and cut out of the middle.

Pillow is not needed for it, so that an array gives the same pixels whether or not it is installed, and in whatever version:
each side is scaled by itself, columns first as in all versions up to 11 (later ones begin with the rows of some tall pictures),
with rounded weights w of 22 bits and rounded sums:

    y_i = ⌊Σ_j w_ij x_j / 2²² + ½⌋,    w_ij ∝ f((j + ½ − c_i) / max(s, 1)),    c_i = (i + ½) s,    s = size before / size after
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from anaphora.data.sources.arrays import Array
from anaphora.errors import DataError

Filter = Literal["bilinear", "bicubic", "lanczos"]
Pixels = np.ndarray[Any, np.dtype[np.uint8]]
_BITS = 22


def _bilinear(x: float) -> float:
    return max(0.0, 1.0 - abs(x))


def _bicubic(x: float) -> float:
    x, a = abs(x), -0.5
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def _lanczos(x: float) -> float:
    return _sinc(x) * _sinc(x / 3) if -3 <= x < 3 else 0.0


def _sinc(x: float) -> float:
    return 1.0 if x == 0 else math.sin(x * math.pi) / (x * math.pi)


_FILTERS: dict[str, tuple[Callable[[float], float], float]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}


@lru_cache(maxsize=64)
def _weights(before: int, after: int, kind: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """w of one side, ``(after, before)``: whole numbers, as float64, in which sums of them are exact."""
    weigh, reach = _FILTERS[kind]
    step = before / after
    wide = max(step, 1.0)
    found = np.zeros((after, before))
    for i in range(after):
        centre = (i + 0.5) * step
        first = max(0, int(centre - reach * wide + 0.5))
        last = min(before, int(centre + reach * wide + 0.5))
        row = [weigh((j - centre + 0.5) * (1.0 / wide)) for j in range(first, last)]
        total = sum(row)
        for j, value in enumerate(row, start=first):
            share = value / total * (1 << _BITS) if total else value
            found[i, j] = int(share - 0.5) if share < 0 else int(share + 0.5)
    return found


def resized(picture: Pixels, size: tuple[int, int], kind: Filter) -> Pixels:
    """``(rows, columns, channels)`` of bytes scaled to ``size``, as ``Image.resize`` of Pillow does."""
    for axis in (1, 0):
        if picture.shape[axis] != size[axis]:
            w = _weights(picture.shape[axis], size[axis], kind)
            lines = np.moveaxis(picture, axis, 0).astype(np.float64)  # (side, other side, channels)
            sums = np.floor((np.tensordot(w, lines, 1) + (1 << (_BITS - 1))) / (1 << _BITS))
            picture = np.moveaxis(sums.clip(0, 255).astype(np.uint8), 0, axis)
    return np.ascontiguousarray(picture)


@dataclass(frozen=True)
class Fit:
    """How a picture becomes one of the model's size: scaled to ``to`` (rows, columns), and with ``shortest`` so that its
    shorter side has that many pixels; then, where that is larger than the model's size, the middle is cut out."""

    to: tuple[int, int]
    kind: Filter = "bilinear"
    shortest: bool = False

    def __call__(self, picture: Array, size: tuple[int, int], where: str) -> Array:
        """The picture ``(*size, 3)`` in numbers from 0 to 255; a `DataError` that begins with ``where`` where it is none."""
        if picture.shape[2] not in (1, 3):
            raise DataError(f"{where} has {picture.shape[2]} channels; give grey, or red, green and blue.")
        if picture.min() < 0 or picture.max() > 255 or not (picture == np.rint(picture)).all():
            raise DataError(
                f"{where} holds numbers that are no pixels; give whole numbers from 0 to 255, or the picture's file."
            )
        pixels: Pixels = picture.astype(np.uint8)
        pixels = resized(pixels, self._scaled(pixels.shape[0], pixels.shape[1]), self.kind)
        pixels = _middle(pixels, size)
        return np.repeat(pixels, 3 // pixels.shape[2], axis=2).astype(np.float32)

    def _scaled(self, rows: int, columns: int) -> tuple[int, int]:
        if not self.shortest:
            return self.to
        short = self.to[0]
        if rows <= columns:
            return short, int(short * columns / rows)
        return int(short * rows / columns), short

    def to_json(self) -> dict[str, Any]:
        return {"to": list(self.to), "kind": self.kind, "shortest": self.shortest}


def _middle(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """The middle of that size; black around what is smaller."""
    for axis in (0, 1):
        spare = pixels.shape[axis] - size[axis]
        if spare > 0:
            first = spare // 2
            pixels = np.take(pixels, range(first, first + size[axis]), axis)
        elif spare < 0:
            before = -(spare // 2)  # the odd line comes first
            margin = [(0, 0)] * 3
            margin[axis] = (before, -spare - before)
            pixels = np.pad(pixels, margin)
    return pixels
