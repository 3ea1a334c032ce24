"""Lines with bands of uncertainty, one per model."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from anaphora.views.colour import SERIES
from anaphora.views.heatmap import MARGIN
from anaphora.views.scene import Dot, Label, Path, Scene
from anaphora.views.text import clip, columns, ems, fold, pad, shorten, visible, wrap

PLOT_WIDTH, PLOT_HEIGHT = 520.0, 280.0
MARKS = "●▲■◆✚★○◇"


@dataclass
class Series:
    """One line: `y` at each place of the x axis (None where there is nothing), with a band if it is known."""

    name: str
    y: list[float | None]
    low: list[float | None]
    high: list[float | None]
    counts: list[int]
    """How many examples each point stands for."""

    def points(self) -> Iterator[int]:
        return (i for i, value in enumerate(self.y) if value is not None)


@dataclass
class Curve:
    """Several series over the same named places."""

    title: str
    subtitle: str
    x_title: str
    y_title: str
    places: list[str]
    series: list[Series]
    low: float = 0.0
    high: float = 1.0
    percent: bool = True
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    def value(self, y: float | None) -> str:
        if y is None:
            return ""
        return f"{100 * y:.1f} %" if self.percent else f"{y:.4g}"

    def describe(self, series: Series, i: int) -> str:
        band = (
            f" ({self.value(series.low[i])} to {self.value(series.high[i])})"
            if series.low[i] is not None
            else ""
        )
        return (
            f"{series.name}, {self.x_title} {self.places[i]}: {self.value(series.y[i])}{band}, "
            f"{series.counts[i]} examples"
        )

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["model", self.x_title, self.y_title, "low", "high", "examples"])
        for line in self.series:
            for i in line.points():
                writer.writerow(
                    [line.name, self.places[i], line.y[i], line.low[i], line.high[i], line.counts[i]]
                )
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        return ["model", *self.places], [[s.name, *(self.value(y) for y in s.y)] for s in self.series]

    def page_data(self) -> dict[str, Any]:
        return {}

    def _share(self, y: float) -> float:
        return (y - self.low) / (self.high - self.low) if self.high > self.low else 0.5

    # ------------------------------------------------------------------ file and page

    def scene(self) -> Scene:
        names = [shorten(visible(line.name), 16) for line in self.series]
        left = MARGIN + 46
        right = left + PLOT_WIDTH
        width = right + 25 + max([ems(name) * 13 * 1.1 for name in names] + [40.0]) + MARGIN
        subtitle = fold(self.subtitle, (width - 2 * MARGIN) / 12)
        top = MARGIN + 66 + 17 * len(subtitle)
        height = top + PLOT_HEIGHT + 62 + 16 * len(self.notes)
        scene = Scene(width, height, self.title, self._description())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, text in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        self._draw_axes(scene, left, top)
        for number, line in enumerate(self.series):
            self._draw_line(scene, line, f"s{number % SERIES}", left, top)
        self._draw_names(scene, names, right + 14, top)
        for i, note in enumerate(self.notes):
            scene.shapes.append(Label(MARGIN, top + PLOT_HEIGHT + 62 + 16 * i, note, size=11, role="muted"))
        return scene

    def _description(self) -> str:
        lines = "; ".join(
            f"{s.name}: " + ", ".join(f"{self.places[i]} {self.value(s.y[i])}" for i in s.points())
            for s in self.series
        )
        return f"{self.reading} {lines}. {self.caution}".strip()

    def _x(self, i: int, left: float) -> float:
        return left + PLOT_WIDTH * (i + 0.5) / max(len(self.places), 1)

    def _y(self, y: float, top: float) -> float:
        return top + PLOT_HEIGHT * (1 - min(max(self._share(y), 0.0), 1.0))

    def _draw_axes(self, scene: Scene, left: float, top: float) -> None:
        for step in range(5):
            y = self.low + (self.high - self.low) * step / 4
            at = self._y(y, top)
            scene.shapes.append(Path(((left, at), (left + PLOT_WIDTH, at)), "grid"))
            text = f"{100 * y:.0f} %" if self.percent else f"{y:.3g}"
            scene.shapes.append(Label(left - 8, at + 4, text, size=11, role="muted", anchor="end"))
        room = PLOT_WIDTH / max(len(self.places), 1)
        for i, place in enumerate(self.places):
            name = shorten(visible(place), room / 11 - 0.5)
            x = self._x(i, left)
            scene.shapes.append(
                Label(x, top + PLOT_HEIGHT + 18, name, size=11, role="muted", anchor="middle")
            )
        middle = left + PLOT_WIDTH / 2
        scene.shapes.append(
            Label(middle, top + PLOT_HEIGHT + 38, self.x_title, size=12, role="muted", anchor="middle")
        )
        scene.shapes.append(Label(MARGIN, top - 16, self.y_title, size=12, role="muted"))

    def _draw_line(self, scene: Scene, line: Series, role: str, left: float, top: float) -> None:
        where = [(self._x(i, left), i) for i in line.points()]
        upper = [(x, self._y(high, top)) for x, i in where if (high := line.high[i]) is not None]
        lower = [(x, self._y(low, top)) for x, i in where if (low := line.low[i]) is not None]
        if len(upper) > 1:
            scene.shapes.append(Path((*upper, *reversed(lower)), role, filled=True, opacity=0.15))
        points = tuple((x, self._y(line.y[i] or 0.0, top)) for x, i in where)
        if len(points) > 1:
            scene.shapes.append(Path(points, role, width=2.2))
        for (x, y), (_, i) in zip(points, where, strict=True):
            text = self.describe(line, i)
            scene.shapes.append(Dot(x, y, 3.8, role, data=(("v", repr(line.y[i])), ("t", text)), title=text))

    def _draw_names(self, scene: Scene, names: list[str], x: float, top: float) -> None:
        """Each name beside the end of its line, moved apart where they would overlap."""
        ends = []
        for number, line in enumerate(self.series):
            last = max(line.points(), default=None)
            if last is not None:
                ends.append((self._y(line.y[last] or 0.0, top), number))
        ends.sort()
        heights = _apart([y for y, _ in ends], 17.0, top + PLOT_HEIGHT)
        for y, (_, number) in zip(heights, ends, strict=True):
            role = f"s{number % SERIES}"
            scene.shapes.append(Dot(x + 2, y, 3.8, role))
            scene.shapes.append(Label(x + 11, y + 4.5, names[number], size=13, role=role, bold=True))

    # ------------------------------------------------------------------ terminal

    def text(self, width: int, *, colour: bool) -> str:
        """A plot of characters with a mark for each series, and what the marks mean."""
        width = max(width, 30)
        tall, label = 11, 7
        room = max(width - label - 1, len(self.places))
        field_ = [[" "] * room for _ in range(tall)]
        for number, line in reversed(list(enumerate(self.series))):
            spots = [
                (int(room * (i + 0.5) / len(self.places)), (tall - 1) * (1 - self._share(line.y[i] or 0.0)))
                for i in line.points()
            ]
            for (x0, y0), (x1, y1) in itertools.pairwise(spots):
                for x in range(x0 + 1, x1):
                    y = y0 + (y1 - y0) * (x - x0) / (x1 - x0)
                    field_[_row(y, tall)][x] = "·"
            for x, y in spots:
                field_[_row(y, tall)][min(x, room - 1)] = MARKS[number % len(MARKS)]
        lines = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width), ""]
        for i, cells in enumerate(field_):
            y = self.high - (self.high - self.low) * i / (tall - 1)
            tick = (f"{100 * y:.0f} %" if self.percent else f"{y:.3g}") if i % 5 == 0 else ""
            lines.append(
                (pad(tick, label - 1, right=True) + (" ┤" if tick else " │") + "".join(cells)).rstrip()
            )
        lines.append(" " * label + "└" + "─" * room)
        each = room // max(len(self.places), 1)
        names = "".join(pad(_centred(visible(place), each), each) for place in self.places)
        lines += [(" " * (label + 1) + names).rstrip(), pad(self.x_title, width, right=True), ""]
        for number, line in enumerate(self.series):
            lines.append(clip(f"{MARKS[number % len(MARKS)]} {visible(line.name)}", width))
        for note in self.notes:
            lines += wrap(visible(note), width)
        return "\n".join(clip(line, width) for line in lines) + "\n"


def _apart(heights: list[float], gap: float, bottom: float) -> list[float]:
    """Rising heights moved so that neighbours are `gap` apart and the last is not below `bottom`."""
    down: list[float] = []
    for height in heights:
        down.append(max(height, down[-1] + gap) if down else height)
    up: list[float] = []
    for height in reversed(down):
        up.append(min(height, (up[-1] - gap) if up else bottom))
    return up[::-1]


def _row(y: float, tall: int) -> int:
    return min(max(round(y), 0), tall - 1)


def _centred(text: str, width: int) -> str:
    text = clip(text, max(width - 1, 1))
    return " " * ((width - columns(text)) // 2) + text
