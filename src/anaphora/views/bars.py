"""Names with bars: one value each, or several beside one another."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

from anaphora.views.colour import SERIES
from anaphora.views.heatmap import MARGIN
from anaphora.views.room import plot_width
from anaphora.views.scene import Label, Rect, Scene
from anaphora.views.text import clip, ems, fold, pad, shorten, visible, wrap

LENGTH = 360.0


@dataclass
class Bars:
    """For each of ``names`` one value of every series (not below zero), drawn against ``most``, or the greatest of all."""

    title: str
    subtitle: str
    names: list[str]
    series: dict[str, list[float]]
    value_title: str = ""
    percent: bool = False
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    most: float = 0.0
    """The value of a bar of full length, where charts share a scale."""

    _long: float = LENGTH

    def value(self, number: float) -> str:
        return f"{100 * number:.1f} %" if self.percent else f"{number:.4g}"

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["name", *self.series])
        for i, name in enumerate(self.names):
            writer.writerow([name, *(values[i] for values in self.series.values())])
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        rows = [[n, *(self.value(v[i]) for v in self.series.values())] for i, n in enumerate(self.names)]
        return ["", *self.series], rows

    def page_data(self) -> dict[str, Any]:
        return {}

    @property
    def greatest(self) -> float:
        """The value of a bar of full length."""
        return max([value for values in self.series.values() for value in values] + [self.most]) or 1.0

    def scene(self) -> Scene:
        each = 15.0 if len(self.series) == 1 else 14.0
        names = [shorten(visible(name), 22) for name in self.names]
        left = MARGIN + max([ems(name) * 13 for name in names] + [40.0]) + 10
        self._long = plot_width(LENGTH, left + 80 + MARGIN, least=60.0, most=640.0)
        width = left + self._long + 80 + MARGIN
        subtitle = fold(self.subtitle, (width - 2 * MARGIN) / 12)
        notes = [line for note in self.notes for line in fold(note, (width - 2 * MARGIN) / 11)]
        legend = 20.0 if len(self.series) > 1 else 0.0
        top = MARGIN + 34 + 17 * len(subtitle) + legend
        row = each * len(self.series) + 8
        height = top + row * len(names) + 20 + 16 * len(notes) + MARGIN / 2
        scene = Scene(width, height, self.title, f"{self.reading} {self.caution}".strip())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, text in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        self._draw_legend(scene, left, top - 16)
        for i, name in enumerate(names):
            y = top + i * row
            scene.shapes.append(
                Label(left - 8, y + row / 2, name, size=13, anchor="end", title=self.names[i])
            )
            self._draw_row(scene, i, left, y, each)
        for i, note in enumerate(notes):
            y = top + row * len(names) + 20 + 16 * i
            scene.shapes.append(Label(MARGIN, y, note, size=11, role="muted"))
        return scene

    def _draw_legend(self, scene: Scene, x: float, y: float) -> None:
        for number, name in enumerate(self.series if len(self.series) > 1 else ()):
            scene.shapes.append(Rect(x, y - 9, 10, 10, f"s{number % SERIES}", radius=2))
            scene.shapes.append(Label(x + 14, y, name, size=12, role=f"s{number % SERIES}", bold=True))
            x += ems(name) * 12 + 34

    def _draw_row(self, scene: Scene, i: int, left: float, y: float, each: float) -> None:
        for number, (series, values) in enumerate(self.series.items()):
            length = max(self._long * values[i] / self.greatest, 0.6)
            text = f"{self.names[i]}, {series}: {self.value(values[i])}"
            data = (("v", repr(float(values[i]))), ("t", text))
            place = y + number * each
            scene.shapes.append(
                Rect(left, place, length, each - 2, f"s{number % SERIES}", radius=2, data=data, title=text)
            )
            shown = self.value(values[i])
            scene.shapes.append(
                Label(left + length + 6, place + each - 4, shown, size=min(11.0, each - 1), role="muted")
            )

    def text(self, width: int, *, colour: bool) -> str:
        width = max(width, 40)
        label = min(max([len(visible(name)) for name in self.names] + [4]), width // 3)
        room = width - label - 12
        lines = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width)]
        marks = "█▒░▚▞"
        if len(self.series) > 1:
            lines += [f"{marks[n % 5]} {name}" for n, name in enumerate(self.series)]
        for i, name in enumerate(self.names):
            for number, values in enumerate(self.series.values()):
                head = pad(visible(name), label, right=True) if number == 0 else " " * label
                bar = marks[number % 5] * round(room * values[i] / self.greatest)
                lines.append(f"{head} {bar} {self.value(values[i])}")
        lines += [line for note in self.notes for line in wrap(visible(note), width)]
        return "\n".join(clip(line, width) for line in lines) + "\n"
