"""Many small matrices at once, each with a name and a line of words."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.views.colour import level
from anaphora.views.heatmap import MARGIN
from anaphora.views.room import room
from anaphora.views.scene import Label, Rect, Scene
from anaphora.views.text import clip, fold, pad, shorten, visible, wrap

SIDE, GAP = 108.0, 52.0
FINEST, COARSER, MANY = 24, 14, 48
"""Cells along a side of a thumbnail, fewer where there are more than so many; a larger matrix is drawn by the greatest
value of each block."""


@dataclass(frozen=True)
class Thumbnail:
    """One matrix between 0 and 1."""

    name: str
    words: str
    values: NDArray[np.float32]
    opens: str = ""
    """Options of the view that show this one large, such as ``layer=1&head=2``."""
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    """What stands at its rows and columns."""

    def strongest(self, count: int = 3) -> str:
        """The cells with the greatest values, such as ``it → animal .99``."""
        if not self.rows or not self.values.size:
            return ""
        order = np.argsort(-self.values, axis=None, kind="stable")[:count]
        cells = [divmod(int(at), self.values.shape[1]) for at in order]
        return ", ".join(
            f"{visible(self.rows[r])} → {visible(self.columns[c])} {self.values[r, c]:.2f}"
            for r, c in cells
            if self.values[r, c] > 0
        )

    def describe(self, r: int, c: int, blocks: tuple[int, int], value: float) -> str:
        """One cell of the picture in words, where each stands for ``blocks`` rows and columns."""
        if not self.rows or blocks != (1, 1):
            return f"{self.name}: {value:.3f}"
        return f"{self.name}: {visible(self.rows[r])} → {visible(self.columns[c])} {value:.3f}"


@dataclass
class Thumbnails:
    """Thumbnails in rows of ``across``."""

    title: str
    subtitle: str
    items: list[Thumbnail]
    across: int
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["name", "row", "column", "value"])
        for item in self.items:
            for (r, c), value in np.ndenumerate(item.values):
                names = (item.rows[r], item.columns[c]) if item.rows else (r, c)
                writer.writerow([item.name, *names, value])
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        return ["", "what it does", "strongest"], [[i.name, i.words, i.strongest()] for i in self.items]

    def page_data(self) -> dict[str, Any]:
        return {}

    def scene(self) -> Scene:
        across = max(min(self.across, 8, int((room() or 1e9) - 2 * MARGIN) // int(SIDE + 20)), 1)
        rows = -(-len(self.items) // across)
        width = max(2 * MARGIN + across * (SIDE + 20), 340.0)
        subtitle = fold(self.subtitle, (width - 2 * MARGIN) / 12)
        top = MARGIN + 30 + 17 * len(subtitle)
        notes = [line for note in self.notes for line in fold(note, (width - 2 * MARGIN) / 11)]
        height = top + rows * (SIDE + GAP) + 16 * len(notes) + MARGIN / 2
        words = "; ".join(f"{item.name}: {item.words}" for item in self.items)
        scene = Scene(width, height, self.title, f"{self.reading} {words}. {self.caution}".strip())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, text in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        for i, item in enumerate(self.items):
            x = MARGIN + (i % across) * (SIDE + 20)
            self._draw(scene, item, x, top + (i // across) * (SIDE + GAP))
        for i, note in enumerate(notes):
            scene.shapes.append(
                Label(MARGIN, top + rows * (SIDE + GAP) + 16 * i, note, size=11, role="muted")
            )
        return scene

    def _draw(self, scene: Scene, item: Thumbnail, x: float, y: float) -> None:
        scene.shapes.append(Label(x, y + 12, shorten(visible(item.name), SIDE / 12), size=12, bold=True))
        small = coarse(item.values, FINEST if len(self.items) <= MANY else COARSER)
        cell = SIDE / max(*small.shape, 1)
        blocks = tuple(
            -(-whole // max(part, 1)) for whole, part in zip(item.values.shape, small.shape, strict=True)
        )
        for (r, c), value in np.ndenumerate(small):
            text = item.describe(r, c, blocks, float(value))
            place = (x + c * cell, y + 18 + r * cell)
            scene.shapes.append(
                Rect(
                    *place,
                    cell,
                    cell,
                    f"c{level(float(value), 0, 1)}",
                    data=(
                        ("v", repr(float(value))),
                        ("t", text),
                        *((("o", item.opens),) if item.opens else ()),
                    ),
                )
            )
        words = shorten(visible(item.words), (SIDE + 14) / 10)
        scene.shapes.append(Label(x, y + SIDE + 32, words, size=10, role="muted", title=item.words))

    def text(self, width: int, *, colour: bool) -> str:
        lines = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width)]
        label = max([len(item.name) for item in self.items] + [4])
        for item in self.items:
            strongest = item.strongest()
            lines.append(
                f"{pad(visible(item.name), label)}  {item.words}{'  ·  ' * bool(strongest)}{strongest}"
            )
        lines += [line for note in self.notes for line in wrap(visible(note), width)]
        return "\n".join(clip(line, width) for line in lines) + "\n"


def coarse(values: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """At most ``side`` × ``side`` cells, each the greatest of those it stands for."""
    rows, columns = (-(-n // side) for n in values.shape)
    if rows <= 1 and columns <= 1:
        return values
    tall, wide = (-(-n // step) for n, step in zip(values.shape, (rows, columns), strict=True))
    padded = np.zeros((tall * rows, wide * columns), values.dtype)
    padded[: values.shape[0], : values.shape[1]] = values
    return np.asarray(padded.reshape(tall, rows, wide, columns).max(axis=(1, 3)))
