"""Points on two numeric axes, in groups, the most telling of them named."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field, replace
from typing import Any

from anaphora.views.axes import Axes, with_room
from anaphora.views.colour import SERIES
from anaphora.views.heatmap import MARGIN
from anaphora.views.room import plot_width, room
from anaphora.views.scene import Dot, Label, Path, Scene
from anaphora.views.text import clip, ems, fold, pad, shorten, visible, wrap

SIDE = 340.0
MARKS = "●▲■◆✚★○◇"
SEVERAL = "*"
"""In a plot of characters: points of several groups in one cell."""


@dataclass(frozen=True)
class Point:
    """One point; ``named`` ones carry their name in the picture, the others when they are pointed at."""

    x: float
    y: float
    name: str
    group: int = 0
    named: bool = False


@dataclass
class Scatter:
    """``points`` of ``groups``; ``guides`` are straight lines to compare them with."""

    title: str
    subtitle: str
    x_title: str
    y_title: str
    points: list[Point]
    groups: list[str]
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    guides: list[tuple[tuple[float, float], tuple[float, float]]] = field(default_factory=list)
    width: float = SIDE
    height: float = SIDE
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    def describe(self, point: Point) -> str:
        return f"{point.name}: {self.x_title} {point.x:.4g}, {self.y_title} {point.y:.4g}"

    def _described(self, points: list[Point]) -> str:
        """Points at one place: how many, and the names of the first of them."""
        if len(points) == 1:
            return self.describe(points[0])
        names = ", ".join(point.name for point in points[:4]) + (" …" if len(points) > 4 else "")
        return f"{len(points)} × {self.describe(replace(points[0], name=names))}"

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["name", "group", self.x_title, self.y_title])
        writer.writerows([p.name, self.groups[p.group], p.x, p.y] for p in self.points)
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        shown = self.points[:500]
        return ["point", self.x_title, self.y_title], [[p.name, f"{p.x:.4g}", f"{p.y:.4g}"] for p in shown]

    def page_data(self) -> dict[str, Any]:
        return {}

    def span(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        """Draw on other ranges, such as those of several charts that share one scale."""
        self.x_range, self.y_range = x, y

    def spans(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The ranges of x and y."""
        return (
            self.x_range or with_room([p.x for p in self.points]),
            self.y_range or with_room([p.y for p in self.points]),
        )

    def scene(self) -> Scene:
        groups = [shorten(visible(name), 18) for name in self.groups]
        left = MARGIN + 52
        legend = max([ems(name) * 13 * 1.1 for name in groups] + [0.0]) + 25 if len(groups) > 1 else 0.0
        side = min(self.width, plot_width(self.width, left + legend + MARGIN + 20))
        width = max(left + side + legend + MARGIN + 20, 320.0 if room() is None else 0.0)
        subtitle = fold(self.subtitle, (width - 2 * MARGIN) / 12)
        said = [*self.notes, *self._counted()]
        notes = [line for note in said for line in fold(note, (width - 2 * MARGIN) / 11)]
        top = MARGIN + 60 + 17 * len(subtitle)
        height = top + self.height + 58 + 16 * len(notes)
        scene = Scene(width, height, self.title, f"{self.reading} {self.caution}".strip())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, text in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        axes = Axes(left, top, side, self.height, *self.spans())
        axes.draw(scene, self.x_title, self.y_title, upright=True)
        for (x0, y0), (x1, y1) in self.guides:
            ends = ((axes.x(x0), axes.y(y0)), (axes.x(x1), axes.y(y1)))
            scene.shapes.append(Path(ends, "muted", width=1.0))
        self._draw_points(scene, axes)
        for i, name in enumerate(groups if len(groups) > 1 else []):
            at = left + side + 16
            scene.shapes.append(Dot(at, top + 7 + 18 * i, 3.8, f"s{i % SERIES}"))
            scene.shapes.append(
                Label(at + 9, top + 11.5 + 18 * i, name, size=13, role=f"s{i % SERIES}", bold=True)
            )
        for i, note in enumerate(notes):
            scene.shapes.append(Label(MARGIN, top + self.height + 56 + 16 * i, note, size=11, role="muted"))
        return scene

    def places(self) -> dict[tuple[float, float], dict[int, list[Point]]]:
        """The points by their place, and there by their group."""
        found: dict[tuple[float, float], dict[int, list[Point]]] = {}
        for point in self.points:
            found.setdefault((point.x, point.y), {}).setdefault(point.group, []).append(point)
        return found

    def _counted(self) -> list[str]:
        """How many places the points have, where several share one."""
        places = len(self.places())
        if places == len(self.points):
            return []
        several = "; dots of several groups at one place stand side by side" if len(self.groups) > 1 else ""
        return [f"{len(self.points)} points at {places} places: a larger dot is several{several}"]

    def _draw_points(self, scene: Scene, axes: Axes) -> None:
        radius = 3.6 if len(self.points) <= 300 else 2.4 if len(self.points) <= 2000 else 1.5
        for (across, up), groups in self.places().items():
            sizes = [radius * min(1 + 0.35 * math.log2(len(points)), 3.0) for points in groups.values()]
            x = axes.x(across) - sum(sizes) + sizes[0]  # side by side, about their place
            for size, (group, points) in zip(sizes, groups.items(), strict=True):
                text = self._described(points)
                count = [("n", str(len(points)))] if len(points) > 1 else []
                data = (("v", repr(points[0].y)), ("t", text), *count)
                scene.shapes.append(Dot(x, axes.y(up), size, f"s{group % SERIES}", data=data, title=text))
                x += 2 * size
        taken: list[tuple[float, float, float]] = []
        for point in self.points:
            if not point.named:
                continue
            shown = shorten(visible(point.name), 14)
            x, y, wide = axes.x(point.x) + radius + 2, axes.y(point.y) + 4, ems(shown) * 11 * 1.06
            # a name that would cover another is left out: pointing at the dot says it
            if any(abs(y - b) < 13 and x < a + w and a < x + wide for a, b, w in taken):
                continue
            taken.append((x, y, wide))
            scene.shapes.append(Label(x, y, shown, size=11))

    def text(self, width: int, *, colour: bool) -> str:
        """A plot of characters, then the names that the picture would show."""
        width = max(width, 40)
        label, room, tall = 9, min(width - 10, 70), 18
        (x0, x1), (y0, y1) = self.spans()
        cells = [[" "] * room for _ in range(tall)]
        mixed = False
        for point in reversed(self.points):
            across = (point.x - x0) / (x1 - x0) if x1 > x0 else 0.5
            down = 1 - ((point.y - y0) / (y1 - y0) if y1 > y0 else 0.5)
            if 0 <= across <= 1 and 0 <= down <= 1:
                mark = MARKS[point.group % len(MARKS)]
                at, column = min(int(down * tall), tall - 1), min(int(across * room), room - 1)
                other = cells[at][column] not in (" ", mark)
                cells[at][column] = SEVERAL if other else mark
                mixed |= other
        shown = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width), self.y_title]
        for i, row in enumerate(cells):
            tick = f"{y1 - (y1 - y0) * (i + 0.5) / tall:.3g}" if i % 4 == 0 else ""
            shown.append(
                (pad(tick, label - 1, right=True) + (" ┤" if tick else " │") + "".join(row)).rstrip()
            )
        shown.append(" " * label + "└" + "─" * room)
        low, high = f"{x0:.3g}", f"{x1:.3g}"
        shown.append(" " * (label + 1) + low + pad(high, room - len(low), right=True))
        shown.append(pad(self.x_title, label + 1 + room, right=True))
        if len(self.groups) > 1:
            shown += [f"{MARKS[i % len(MARKS)]} {visible(name)}" for i, name in enumerate(self.groups)]
            shown += [f"{SEVERAL} several of them"] * mixed
        shown += [self.describe(p) for p in self.points if p.named][:20]
        counted = [f"{len(self.points)} points at {len(self.places())} places"] * bool(self._counted())
        shown += [line for note in (*self.notes, *counted) for line in wrap(visible(note), width)]
        return "\n".join(clip(visible(line), width) for line in shown) + "\n"
