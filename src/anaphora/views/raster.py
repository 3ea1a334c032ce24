"""Pixels: steps of the scale in a theme's colours, sizes that fit, a PNG inside a document, blocks in a terminal."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.pictures import png_bytes
from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.blocks import shade
from anaphora.views.colour import LEVELS, Theme, rgb

Pixels = NDArray[np.uint8]


def levels(values: NDArray[Any], low: float, high: float) -> Pixels:
    """The step of the scale for each value between `low` and `high`, as `colour.level`; what is no number is `low`."""
    if not high > low:
        return np.zeros(values.shape, np.uint8)
    share = (np.nan_to_num(np.asarray(values, np.float64), nan=low) - low) / (high - low)
    return np.rint(np.clip(share, 0.0, 1.0) * (LEVELS - 1)).astype(np.uint8)


def painted(pixels: Pixels, theme: Theme) -> Pixels:
    """Red, green and blue (rows, columns, 3) of pixels that are so already, or of steps of the scale."""
    if pixels.ndim == 3:
        return pixels
    return np.array([rgb(colour) for colour in theme.scale], np.uint8)[pixels]


def data_uri(pixels: Pixels) -> str:
    """Red, green and blue (rows, columns, 3) as the address of a PNG that is the address itself."""
    return f"data:image/png;base64,{encoded(pixels)}"


def encoded(pixels: Pixels) -> str:
    """The PNG of red, green and blue (rows, columns, 3) in base 64."""
    return base64.b64encode(png_bytes(np.ascontiguousarray(pixels))).decode()


def resized(values: NDArray[Any], rows: int, columns: int) -> NDArray[np.float64]:
    """`values` (height, width, …) as (rows, columns, …): along each side the mean of the cells that fall into a larger
    one, or cells repeated."""
    found = np.asarray(values, np.float64)
    for axis, wanted in enumerate((rows, columns)):
        size = found.shape[axis]
        if wanted < size:
            edges = np.arange(wanted) * size // wanted
            counts = np.diff([*edges, size]).reshape([-1 if a == axis else 1 for a in range(found.ndim)])
            found = np.add.reduceat(found, edges, axis=axis) / counts
        elif wanted > size:
            found = found.take(np.arange(wanted) * size // wanted, axis=axis)
    return found


def within(pixels: Pixels, side: int) -> Pixels:
    """`pixels` (rows, columns, 3) made smaller, in proportion, until neither side is longer than `side`."""
    share = min(1.0, side / max(pixels.shape[:2]))
    rows, columns = (max(1, round(n * share)) for n in pixels.shape[:2])
    return np.rint(resized(pixels, rows, columns)).astype(np.uint8)


def half_blocks(pixels: Pixels, columns: int, *, colour: bool) -> list[str]:
    """A picture (rows, columns, 3) as lines of `columns` characters, each of two pixels one above the other; without
    colour a character is as dense as its two pixels are bright."""
    height, width = pixels.shape[:2]
    lines = max(1, round(height * columns / width / 2))
    small = np.rint(resized(pixels, 2 * lines, columns)).astype(int)
    if colour:
        return [
            "".join(
                f"\x1b[38;2;{a[0]};{a[1]};{a[2]};48;2;{b[0]};{b[1]};{b[2]}m▀"
                for a, b in zip(small[r].tolist(), small[r + 1].tolist(), strict=True)
            )
            + "\x1b[0m"
            for r in range(0, 2 * lines, 2)
        ]
    bright = small.reshape(lines, 2, columns, 3).mean(axis=(1, 3)) / 255
    return ["".join(shade(float(share)) for share in row) for row in bright]


def picture_of(trace: Trace) -> Pixels:
    """The array ``picture`` (row, column, channel) as red, green and blue from 0 to 255; one channel is grey."""
    values = np.asarray(trace.array("picture", "row", "column", "channel"))
    if values.dtype != np.uint8 or values.shape[2] not in (1, 3) or 0 in values.shape:
        raise AnaphoraError(
            f"The picture must be whole numbers from 0 to 255 (uint8) of 1 or 3 channels, not {values.dtype} {values.shape}."
        )
    return np.repeat(values, 3, axis=2) if values.shape[2] == 1 else values
