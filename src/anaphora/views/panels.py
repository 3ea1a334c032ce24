"""Several charts as one picture, one below the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from anaphora.views.heatmap import MARGIN, Heatmap
from anaphora.views.picture import Chart
from anaphora.views.room import fitted, room
from anaphora.views.scene import Label, Path, Rect, Scene, Shape
from anaphora.views.text import fold, visible, wrap

TWO = 900.0
"""Units from which on two charts stand side by side."""


@dataclass
class Panels:
    """``charts`` under one title; each keeps its own axes."""

    title: str
    subtitle: str
    charts: list[Any]
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""
    least: float = field(default=0.0, kw_only=True)
    """Units that each chart needs: as many stand side by side as have them. 0: two from `TWO` on."""

    def scene(self) -> Scene:
        scenes = self._scenes()
        wide = room()
        width = max([scene.width for scene in scenes] + [320.0 if wide is None else wide])
        subtitle = fold(self.subtitle, (width - 2 * MARGIN) / 12)
        top = MARGIN + 24 + 17 * len(subtitle)
        words = "; ".join(f"{scene.title}: {scene.description}" for scene in scenes)
        whole = Scene(width, top, self.title, f"{self.reading} {words} {self.caution}".strip())
        whole.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=19, bold=True))
        for i, text in enumerate(subtitle):
            whole.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        across = tall = 0.0
        for chart, scene in zip(self._charts(), scenes, strict=True):
            if across and across + scene.width > width + 1:
                whole.height, across, tall = whole.height + tall, 0.0, 0.0
            whole.shapes += [moved(_named(shape, chart), whole.height, across) for shape in scene.shapes]
            across, tall = (across + scene.width, max(tall, scene.height)) if wide else (width, scene.height)
        whole.height += tall
        for note in self.notes:
            for text in fold(note, (width - 2 * MARGIN) / 11):
                whole.shapes.append(Label(MARGIN, whole.height + 4, text, size=11, role="muted"))
                whole.height += 16
        whole.height += MARGIN if self.notes else 0.0
        return whole

    def _scenes(self) -> list[Scene]:
        """The charts; where there is room for two side by side, each has half of it, matrices with many columns apart."""
        wide = room()
        charts = self._charts()
        across = 1 if wide is None else int(wide // self.least) if self.least else 1 + (wide >= TWO)
        across = max(1, min(across, len(charts)))
        if wide is None or across < 2:
            return [chart.scene() for chart in charts]
        scenes = []
        for chart in charts:
            many = isinstance(chart, Heatmap) and len(chart.columns) > 24
            with fitted(wide if many else wide / across):
                scenes.append(chart.scene())
        return scenes

    def _charts(self) -> list[Chart]:
        return list(self.charts)

    def text(self, width: int, *, colour: bool) -> str:
        parts = ["\n".join([*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width)]) + "\n"]
        parts += [chart.text(width, colour=colour) for chart in self._charts()]
        parts += ["\n".join(wrap(visible(note), width)) + "\n" for note in self.notes]
        return "\n".join(parts)

    def csv(self) -> str:
        """The tables of all panels, each under a line with its name."""
        return "\n".join(f"# {chart.title}\n{chart.csv()}" for chart in self._charts())

    def table(self) -> tuple[list[str], list[list[str]]]:
        head: list[str] = []
        rows: list[list[str]] = []
        for chart in self._charts():
            names, body = chart.table()
            head = head if len(head) >= len(names) else ["", *names[1:]]
            rows += [[f"{chart.title}: {row[0]}", *row[1:]] for row in body]
        return head, rows

    def page_data(self) -> dict[str, Any]:
        return {}


def moved(shape: Shape, down: float, right: float = 0.0) -> Shape:
    """The same shape, ``down`` units lower and ``right`` units further to the right."""
    if isinstance(shape, Path):
        return replace(shape, points=tuple((x + right, y + down) for x, y in shape.points))
    return replace(shape, x=shape.x + right, y=shape.y + down)


def _named(shape: Shape, chart: Chart) -> Shape:
    """A cell says by itself what it is: among several charts its row and column alone do not tell."""
    if not isinstance(shape, Rect) or not isinstance(chart, Heatmap) or not shape.data:
        return shape
    place = dict(shape.data)
    text = chart.describe(int(place["r"]), int(place["c"]))
    return replace(shape, data=(("v", place["v"]), ("t", text)))
