"""A matrix with names on both sides, drawn in shades."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.views.blocks import heatmap_blocks
from anaphora.views.colour import LEVELS, level, readable
from anaphora.views.room import plot_width, room
from anaphora.views.scene import Dot, Label, Path, Rect, Scene
from anaphora.views.text import ems, fold, shorten, visible

MARGIN = 24.0
LABEL_EMS = 15.0  # longer names are cut in the picture; the page and the tooltip show them whole
SLANT = 60.0


@dataclass
class Heatmap:
    """`values` (rows, columns) between `low` and `high`, with a name for every row and column."""

    title: str
    subtitle: str
    values: NDArray[np.float32]
    rows: list[str]
    columns: list[str]
    row_title: str
    column_title: str
    value_title: str
    low: float = 0.0
    high: float = 1.0
    signed: bool = False
    """Whether zero is the middle: ``low`` must be ``-high`` then, and two hues say which side a value is on."""
    path: list[int] = field(default_factory=list)
    """A row for each column: a line through these cells is drawn over them."""
    words: list[list[str]] = field(default_factory=list)
    """A word for each cell, written into it where there is room."""
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    def number(self, row: int, column: int) -> str:
        """The exact value, spelled as short as its precision allows."""
        return str(np.float32(self.values[row, column]))

    def describe(self, row: int, column: int) -> str:
        word = f" {visible(self.words[row][column])}" if self.words else ""
        return f"{self.rows[row]} ← {self.columns[column]}:{word} {self.values[row, column]:.3f}"

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([f"{self.row_title} \\ {self.column_title}", *self.columns])
        for r, name in enumerate(self.rows):
            writer.writerow([name, *(self.number(r, c) for c in range(len(self.columns)))])
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and body of the table that stands for the picture where it cannot be seen."""
        body = [
            [name, *(f"{self.values[r, c]:.3f}" for c in range(len(self.columns)))]
            for r, name in enumerate(self.rows)
        ]
        return [self.row_title, *self.columns], body

    def page_data(self) -> dict[str, Any]:
        """What the page's script needs to name a cell."""
        return {"rows": [visible(r) for r in self.rows], "columns": [visible(c) for c in self.columns]}

    def text(self, width: int, *, colour: bool) -> str:
        return heatmap_blocks(self, width, colour=colour)

    def scene(self) -> Scene:
        """Column names slanted on top, row names at the left, square cells, a colour bar below."""
        place = _Layout(self)
        scene = Scene(place.width, place.height, self.title, self._description())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, line in enumerate(place.subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, line, size=12, role="muted"))
        self._draw_names(scene, place)
        self._draw_cells(scene, place)
        self._draw_words(scene, place)
        self._draw_path(scene, place)
        self._draw_foot(scene, place)
        return scene

    def _draw_words(self, scene: Scene, place: _Layout) -> None:
        size = min(11.0, place.tall * 0.6)
        for r, row in enumerate(self.words):
            for c, word in enumerate(row):
                shown = shorten(visible(word), (place.wide - 4) / size)
                if ems(shown) * size > place.wide - 2:
                    continue
                x, y = place.left + (c + 0.5) * place.wide, place.top + (r + 0.5) * place.tall + size * 0.36
                shade = level(float(self.values[r, c]), self.low, self.high)
                role = readable(shade, signed=self.signed)
                scene.shapes.append(Label(x, y, shown, size=size, anchor="middle", role=role))

    def _draw_path(self, scene: Scene, place: _Layout) -> None:
        points = tuple(
            (place.left + (c + 0.5) * place.wide, place.top + (r + 0.5) * place.tall)
            for c, r in enumerate(self.path)
        )
        if points:
            scene.shapes.append(Path(points, "page", width=5.0))
            scene.shapes.append(Path(points, "s1", width=2.2))
            radius = min(4.0, place.wide / 4)
            scene.shapes += [Dot(x, y, radius, "s1") for x, y in points]

    def _description(self) -> str:
        strongest = [
            f"{name} ← {self.columns[int(np.argmax(self.values[r]))]}"
            for r, name in enumerate(self.rows)
            if len(self.columns)
        ]
        most = "; ".join(strongest[:40]) + (" …" if len(strongest) > 40 else "")
        return f"{self.reading} Strongest in each row: {most or 'nothing'}. {self.caution}".strip()

    def _draw_names(self, scene: Scene, place: _Layout) -> None:
        corner = place.left - 10
        scene.shapes.append(
            Label(corner, place.top - 26, f"{self.column_title} →", size=11, role="muted", anchor="end")
        )
        scene.shapes.append(
            Label(corner, place.top - 10, f"{self.row_title} ↓", size=11, role="muted", anchor="end")
        )
        font = place.font
        every = max(1, math.ceil(11 / place.wide))  # names that would touch are left out
        for c, name in enumerate(place.columns):
            if c % every:
                continue
            x = place.left + (c + 0.5) * place.wide + font * 0.25
            scene.shapes.append(
                Label(x, place.top - 7, name, size=font, angle=-SLANT, title=visible(self.columns[c]))
            )
        for r, name in enumerate(place.rows):
            y = place.top + (r + 0.5) * place.tall + font * 0.35
            scene.shapes.append(
                Label(place.left - 10, y, name, size=font, anchor="end", title=visible(self.rows[r]))
            )

    def _draw_cells(self, scene: Scene, place: _Layout) -> None:
        wide, tall, gap = place.wide, place.tall, place.gap
        for r in range(len(self.rows)):
            for c in range(len(self.columns)):
                value = float(self.values[r, c])
                scene.shapes.append(
                    Rect(
                        place.left + c * wide + gap / 2,
                        place.top + r * tall + gap / 2,
                        wide - gap,
                        tall - gap,
                        f"{'d' if self.signed else 'c'}{level(value, self.low, self.high)}",
                        radius=min(3.0, wide / 8),
                        data=(("r", str(r)), ("c", str(c)), ("v", self.number(r, c))),
                        title=self.describe(r, c)
                        if value - self.low >= 0.005 * (self.high - self.low)
                        else "",
                    )
                )

    def _draw_foot(self, scene: Scene, place: _Layout) -> None:
        y, bar = place.foot, 132.0
        step = bar / LEVELS
        for i in range(LEVELS):
            scene.shapes.append(
                Rect(MARGIN + i * step, y, step + 0.3, 9, f"{'d' if self.signed else 'c'}{i}")
            )
        frame = ((MARGIN, y), (MARGIN + bar, y), (MARGIN + bar, y + 9), (MARGIN, y + 9), (MARGIN, y))
        scene.shapes.append(Path(frame, "grid", width=1))
        for share in (0.0, 0.5, 1.0):
            text = f"{self.low + share * (self.high - self.low):.3g}"
            anchor = {0.0: "start", 0.5: "middle", 1.0: "end"}[share]
            scene.shapes.append(
                Label(MARGIN + share * bar, y + 22, text, size=11, role="muted", anchor=anchor)
            )
        scene.shapes.append(Label(MARGIN + bar + 12, y + 9, self.value_title, size=11, role="muted"))
        for i, note in enumerate(place.notes):
            scene.shapes.append(Label(MARGIN, y + 44 + 16 * i, note, size=11, role="muted"))


class _Layout:
    """Where everything goes: cells as large as the longer side allows, room for every name."""

    def __init__(self, chart: Heatmap):
        rows, columns = len(chart.rows), len(chart.columns)
        self.rows = [shorten(visible(name), LABEL_EMS) for name in chart.rows]
        self.columns = [shorten(visible(name), LABEL_EMS) for name in chart.columns]
        corner = ems(f"{chart.column_title} →") * 11
        self.left = MARGIN + max([ems(name) * 13.0 for name in self.rows] + [corner]) + 10
        tail = max([ems(name) * 13.0 for name in self.columns[-1:]] + [0.0]) * math.cos(math.radians(SLANT))
        square = min(36.0, max(14.0, 640.0 / max(rows, columns, 1)))
        if room() is None:
            self.wide = self.tall = square
        else:  # as wide as there is room, but no taller than a window
            free = plot_width(0.0, self.left + tail + MARGIN)
            self.wide = min(max(free / max(columns, 1), 7.0), 48.0)
            self.tall = min(max(min(self.wide, 480.0 / max(rows, 1)), 13.0), 36.0)
        self.gap = 2.0 if self.wide >= 20 else 1.0 if self.wide >= 9 else 0.4
        self.font = min(13.0, max(10.0, self.tall * 0.62))
        slanted = [ems(name) * self.font for name in self.columns]
        rise = max([length * math.sin(math.radians(SLANT)) for length in slanted] + [40.0]) + self.font
        ends = [
            self.left + (c + 1) * self.wide + length * math.cos(math.radians(SLANT))
            for c, length in enumerate(slanted)
        ]
        notes = [MARGIN + ems(note) * 11 for note in chart.notes]
        title = MARGIN + ems(chart.title) * 17 * 1.06
        foot = MARGIN + 144 + ems(chart.value_title) * 11
        if room() is not None:
            notes = []  # they are folded
        self.width = max([*ends, *notes, title, foot, 360.0 if room() is None else 0.0]) + MARGIN
        self.notes = [part for note in chart.notes for part in fold(note, (self.width - 2 * MARGIN) / 11)]
        self.subtitle = fold(chart.subtitle, (self.width - 2 * MARGIN) / 12)
        self.top = MARGIN + 24 + 17 * len(self.subtitle) + rise + 10
        self.foot = self.top + rows * self.tall + 22
        self.height = self.foot + 34 + 16 * len(self.notes) + MARGIN / 2
