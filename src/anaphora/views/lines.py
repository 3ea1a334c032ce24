"""Lines over a numeric axis, with raw points under a smoothed line and marks where something happened."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from anaphora.views.axes import Axes, with_room
from anaphora.views.colour import SERIES
from anaphora.views.heatmap import MARGIN
from anaphora.views.lines_text import plot
from anaphora.views.room import plot_width, room
from anaphora.views.scene import Dot, Label, Path, Scene
from anaphora.views.text import ems, fold, shorten, visible

PLOT_WIDTH, PLOT_HEIGHT = 620.0, 200.0
NARROW = 520.0
"""Below so much room the names of lines stand below the plot instead of beside it."""
DOTS_AT_MOST = 400
"""Of a line with more points every so many-th can be pointed at; the line itself keeps them all."""


@dataclass(frozen=True)
class Line:
    """One series: points in the order of x. ``smooth`` draws the points as they came in grey under a smoothed line,
    ``dots`` leaves the line out, ``dashed`` tells it from another line of its colour."""

    name: str
    x: list[float]
    y: list[float]
    smooth: bool = False
    dots: bool = False
    colour: int | None = None
    """The number of its colour; by default that of the line. Lines that belong together share one."""
    dashed: bool = False

    def points(self) -> Iterator[tuple[float, float]]:
        return ((x, y) for x, y in zip(self.x, self.y, strict=True) if math.isfinite(y))

    def smoothed(self) -> list[tuple[float, float]]:
        """A moving average with the bias of its start removed (as Adam removes it), about a 40th of the line long."""
        points = list(self.points())
        keep = 1 - 1 / max(1.0, len(points) / 40)
        mean, weight, found = 0.0, 0.0, []
        for x, y in points:
            mean, weight = keep * mean + (1 - keep) * y, keep * weight + 1 - keep
            found.append((x, mean / weight))
        return found


@dataclass(frozen=True)
class Band:
    """The area between two lines, in the colour of line number ``line``."""

    x: list[float]
    low: list[float]
    high: list[float]
    line: int = 0


@dataclass
class Lines:
    """Several lines over the same numeric axis; ``log`` draws y by its logarithm."""

    title: str
    subtitle: str
    x_title: str
    y_title: str
    lines: list[Line]
    log: bool = False
    events: list[tuple[float, str]] = field(default_factory=list)
    """Places on the x axis where something happened, and what."""
    bands: list[Band] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    """What stands at x = 1, 2, …, where places are symbols; they take the place of numbers on the axis."""
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    def __post_init__(self) -> None:
        xs = [x for line in self.lines for x, _ in self._drawn(line)]
        ys = [y for line in self.lines for _, y in self._drawn(line)]
        ys += [y for band in self.bands for y in (*band.low, *band.high) if math.isfinite(y) and not self.log]
        self._left, self._right = (min(xs), max(xs)) if xs else (0.0, 1.0)
        self._low, self._high = with_room(ys)

    def spans(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The ranges of x and y; where ``log`` holds, of the decimal logarithm of y."""
        return (self._left, self._right), (self._low, self._high)

    def span(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        """Draw on other ranges, such as those of several charts that share one scale."""
        (self._left, self._right), (self._low, self._high) = x, y

    def _drawn(self, line: Line) -> Iterator[tuple[float, float]]:
        for x, y in line.points():
            if not self.log:
                yield x, y
            elif y > 0:
                yield x, math.log10(y)

    def value(self, y: float) -> str:
        return f"{y:.4g}"

    def describe(self, line: Line, x: float, y: float) -> str:
        where = f" ({visible(self.symbols[int(x) - 1])})" if 1 <= x <= len(self.symbols) else ""
        return f"{line.name}, {self.x_title} {x:g}{where}: {self.value(y)}"

    def _role(self, number: int) -> str:
        chosen = self.lines[number].colour if number < len(self.lines) else None
        return f"s{(number if chosen is None else chosen) % SERIES}"

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["line", self.x_title, self.y_title])
        for line in self.lines:
            writer.writerows([line.name, x, y] for x, y in line.points())
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        """First, best (lowest and highest) and last value of each line."""
        rows = []
        for line in self.lines:
            ys = [y for _, y in line.points()]
            if ys:
                rows.append([line.name, *(self.value(y) for y in (ys[0], min(ys), max(ys), ys[-1]))])
        return [self.y_title, "first", "lowest", "highest", "last"], rows

    def page_data(self) -> dict[str, Any]:
        return {}

    # ------------------------------------------------------------------ file and page

    def scene(self) -> Scene:
        names = [shorten(visible(line.name), 16) for line in self.lines]
        left = MARGIN + 52
        legend = 25 + max([ems(name) * 13 * 1.1 for name in names] + [40.0])
        below = (room() or math.inf) < NARROW
        beside = left + MARGIN + (8.0 if below else legend)
        plot = plot_width(PLOT_WIDTH, beside, least=170.0)
        width = plot + beside
        subtitle = fold(self.subtitle, (width - 2 * MARGIN) / 12)
        top = MARGIN + 60 + 17 * len(subtitle)
        notes = [part for note in self.notes for part in fold(note, (width - 2 * MARGIN) / 11)]
        axes = Axes(
            left,
            top,
            plot,
            PLOT_HEIGHT,
            (self._left, self._right),
            (self._low, self._high),
            log=self.log,
            symbols=tuple(self.symbols),
        )
        foot = top + PLOT_HEIGHT + 22 + axes.below
        under = 18.0 * len(names) if below else 0.0
        scene = Scene(width, foot + under + 16 * len(notes), self.title, self._description())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, text in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        axes.draw(scene, self.x_title, self.y_title)
        self._draw_events(scene, axes)
        for band in self.bands:
            upper = [(axes.x(x), axes.y(y)) for x, y in zip(band.x, band.high, strict=True)]
            lower = [(axes.x(x), axes.y(y)) for x, y in zip(band.x, band.low, strict=True)]
            scene.shapes.append(
                Path((*upper, *reversed(lower)), self._role(band.line), filled=True, opacity=0.15)
            )
        for number, line in enumerate(self.lines):
            self._draw_line(scene, line, self._role(number), axes)
        self._draw_names(scene, names, *((left, foot - 8) if below else (left + plot + 14, top)))
        for i, note in enumerate(notes):
            scene.shapes.append(Label(MARGIN, foot + under - 2 + 16 * i, note, size=11, role="muted"))
        return scene

    def _description(self) -> str:
        _, rows = self.table()
        lines = "; ".join(f"{row[0]}: first {row[1]}, lowest {row[2]}, last {row[4]}" for row in rows)
        return f"{self.reading} {lines}. {self.caution}".strip()

    def _draw_events(self, scene: Scene, axes: Axes) -> None:
        for x, what in self.events:
            if self._left <= x <= self._right:
                at, top = axes.x(x), axes.top
                scene.shapes.append(Path(((at, top), (at, top + PLOT_HEIGHT)), "muted", width=0.8))
                scene.shapes.append(
                    Label(at + 3, top + 10, what, size=10, role="muted", title=f"{what} at {x:g}")
                )

    def _draw_line(self, scene: Scene, line: Line, role: str, axes: Axes) -> None:
        drawn = list(self._drawn(line))
        if line.smooth and len(drawn) > 2:
            rough = tuple((axes.x(x), axes.y(y)) for x, y in drawn)
            scene.shapes.append(Path(rough, f"p{role[1:]}", width=0.8))
            points = [
                (x, math.log10(y) if self.log else y) for x, y in line.smoothed() if not self.log or y > 0
            ]
        else:
            points = drawn
        if len(points) > 1 and not line.dots:
            places = tuple((axes.x(x), axes.y(y)) for x, y in points)
            scene.shapes.append(Path(places, role, width=2.0, dashed=line.dashed))
        every = max(1, len(drawn) // DOTS_AT_MOST)
        radius = 3.2 if len(drawn) <= 60 else 2.2 if line.dots else 1.4
        for x, y in drawn[::every]:
            exact = 10**y if self.log else y
            text = self.describe(line, x, exact)
            scene.shapes.append(
                Dot(
                    axes.x(x),
                    axes.y(y),
                    radius,
                    role,
                    data=(("v", repr(exact)), ("t", text)),
                    title=text,
                )
            )

    def _draw_names(self, scene: Scene, names: list[str], x: float, top: float) -> None:
        for number, name in enumerate(names):
            y, role, line = top + 12 + 18 * number, self._role(number), self.lines[number]
            if line.dots:
                scene.shapes.append(Dot(x + 2, y - 4.5, 3.8, role))
            else:
                scene.shapes.append(
                    Path(((x - 5, y - 4.5), (x + 7, y - 4.5)), role, width=2.5, dashed=line.dashed)
                )
            scene.shapes.append(Label(x + 12, y, name, size=13, role=role, bold=True))

    def text(self, width: int, *, colour: bool) -> str:
        """A plot of characters with joined lines and round numbers at its edges."""
        drawn = [(line.name, list(self._drawn(line)), line.dots) for line in self.lines]
        limits = (self._left, self._right), (self._low, self._high)
        return plot(self, drawn, limits, width, log=self.log)
