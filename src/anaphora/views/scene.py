"""A picture as shapes with places and roles; what becomes of them in SVG or PNG is another file's matter."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]


@dataclass(frozen=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    role: str
    radius: float = 0.0
    data: tuple[tuple[str, str], ...] = ()
    """Names and values that a page can read back: the exact number, the row, the column."""
    title: str = ""


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    """The baseline."""
    text: str
    size: float = 12.0
    role: str = "text"
    anchor: str = "start"
    angle: float = 0.0
    """Degrees, turned clockwise about (x, y)."""
    bold: bool = False
    title: str = ""
    spans: tuple[tuple[str, str], ...] = ()
    """Parts of the text, one after the other, each with a role of its own: (part, role). Together they are the text."""


@dataclass(frozen=True)
class Path:
    """A line through `points`, or with `filled` the area they enclose."""

    points: tuple[Point, ...]
    role: str
    width: float = 1.0
    filled: bool = False
    opacity: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    radius: float
    role: str
    data: tuple[tuple[str, str], ...] = ()
    title: str = ""


@dataclass(frozen=True, eq=False)
class Image:
    """Pixels stretched over a rectangle, each a box of one colour: nothing is smoothed."""

    x: float
    y: float
    width: float
    height: float
    pixels: NDArray[np.uint8]
    """(rows, columns, 3) red, green and blue; or (rows, columns) steps of the scale, which each theme colours."""
    title: str = ""


Shape = Rect | Label | Path | Dot | Image


@dataclass
class Scene:
    width: float
    height: float
    title: str
    description: str
    """A sentence or two for those who cannot see it."""
    shapes: list[Shape] = field(default_factory=list)
