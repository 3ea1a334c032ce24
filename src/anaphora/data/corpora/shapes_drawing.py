"""Scenes as pixels: the objects of many scenes are drawn at once, each into the cell it lies in.

An object covers a pixel by ½ − d, kept between 0 and 1, where d is how far the pixel's middle lies outside its outline
(negative inside): the edges are smooth. Sums, products, roots and comparisons are all there is, so that a picture has
the same bytes on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CELLS, CELL = 4, 16
SIDE = CELLS * CELL
RADIUS = {"small": 4.5, "big": 7.0}
SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (215, 45, 40),
    "green": (50, 165, 60),
    "blue": (55, 90, 225),
    "yellow": (235, 215, 50),
    "purple": (160, 60, 190),
    "white": (240, 240, 240),
}
NOISE = 10
"""How far a pixel may be off, of 255."""
_TOGETHER = 256  # scenes drawn at once, which bounds the memory it takes

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Figure:
    """What is to be drawn in a cell: middle is (x, y) in pixels of the cell, tint is added to the colour."""

    row: int
    column: int
    middle: tuple[float, float]
    size: str
    colour: str
    shape: str
    tint: tuple[int, int, int]


def draw_scenes(
    grounds: Sequence[int], figures: Sequence[Sequence[Figure]], random: np.random.RandomState
) -> Pixels:
    """``(scenes, 64, 64, 3)``: for every scene the grey level of its ground, and what lies on it."""
    pictures = np.empty((len(grounds), SIDE, SIDE, 3), dtype=np.uint8)
    for begin in range(0, len(grounds), _TOGETHER):
        part = slice(begin, begin + _TOGETHER)
        plain = _draw(np.array(grounds[part], dtype=float), figures[part])
        speckle = random.randint(-NOISE, NOISE + 1, size=(len(plain), SIDE, SIDE, 1), dtype=np.int8)
        pictures[part] = np.clip(np.rint(plain + speckle), 0, 255)
    return pictures


def _draw(grounds: Numbers, figures: Sequence[Sequence[Figure]]) -> Numbers:
    """The scenes ``(scenes, 64, 64, 3)`` without noise."""
    pictures = np.empty((len(grounds), CELLS, CELL, CELLS, CELL, 3))
    pictures[:] = grounds.reshape(-1, 1, 1, 1, 1, 1)
    placed = [(scene, figure) for scene, many in enumerate(figures) for figure in many]
    for shape in SHAPES:
        some = [(scene, figure) for scene, figure in placed if figure.shape == shape]
        if not some:
            continue
        scene = np.array([scene for scene, _ in some])
        row, column = np.array([(figure.row, figure.column) for _, figure in some]).T
        cover = _covered(shape, [figure for _, figure in some])[..., None]
        colour = np.array([np.add(COLOURS[figure.colour], figure.tint) for _, figure in some], dtype=float)
        below = grounds[scene].reshape(-1, 1, 1, 1)
        pictures[scene, row, :, column] = cover * colour[:, None, None] + (1 - cover) * below
    return pictures.reshape(-1, SIDE, SIDE, 3)


def _covered(shape: str, figures: Sequence[Figure]) -> Numbers:
    """How much of each pixel ``(figures, 16, 16)`` lies inside the outline."""
    pixel = np.arange(CELL) + 0.5
    middle = np.array([figure.middle for figure in figures])
    radius = np.array([RADIUS[figure.size] for figure in figures])[:, None, None]
    x = pixel[None, None, :] - middle[:, 0, None, None]
    y = pixel[None, :, None] - middle[:, 1, None, None]
    return np.clip(0.5 - _outside(shape, x, y, radius), 0.0, 1.0)


def _outside(shape: str, x: Numbers, y: Numbers, radius: Numbers) -> Numbers:
    """How far (x, y) lies outside a shape about the origin; the y axis points down."""
    if shape == "circle":
        return np.sqrt(x * x + y * y) - radius
    if shape == "square":
        return np.maximum(np.abs(x), np.abs(y)) - radius
    if shape == "triangle":  # the tip at the top, the base as wide as it is high
        side: Numbers = (2 * np.abs(x) - y - radius) / math.sqrt(5.0)
        return np.maximum(side, y - radius)
    arm = 0.32 * radius
    across = np.maximum(np.abs(x) - radius, np.abs(y) - arm)
    upright = np.maximum(np.abs(y) - radius, np.abs(x) - arm)
    return np.minimum(across, upright)
