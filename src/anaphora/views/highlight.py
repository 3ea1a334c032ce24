"""A text whose symbols stand on shades: how much each of them counts."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

from anaphora.views.colour import level, readable
from anaphora.views.heatmap import MARGIN
from anaphora.views.room import plot_width
from anaphora.views.scene import Label, Rect, Scene
from anaphora.views.text import clip, ems, fold, shorten, visible, wrap

WIDTH, ROW, SIZE = 640.0, 26.0, 13.0
SHADES = " ░▒▓█"


@dataclass
class Highlight:
    """``symbols`` one after the other, each on the shade of its value between ``low`` and ``high``; ``said`` describes each."""

    title: str
    subtitle: str
    symbols: list[str]
    values: list[float]
    low: float = 0.0
    high: float = 1.0
    signed: bool = False
    marked: int | None = None
    """A symbol with a frame: the one that is asked about."""
    said: list[str] = field(default_factory=list)
    opens: list[str] = field(default_factory=list)
    """For each symbol the options of the view that a click on it sets, as in an address (``output=3``)."""
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    def describe(self, i: int) -> str:
        return self.said[i] if self.said else f"{visible(self.symbols[i])}: {self.values[i]:.4g}"

    def scene(self) -> Scene:
        inner = plot_width(WIDTH, 2 * MARGIN)
        width = inner + 2 * MARGIN
        subtitle = fold(self.subtitle, inner / 12)
        scene = Scene(width, MARGIN + 30 + 17 * len(subtitle), self.title, self._description())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, text in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        x, y = MARGIN, scene.height
        for i, symbol in enumerate(self.symbols):
            shown = shorten(visible(symbol).replace(" ", "␣"), 16)
            wide = max(ems(shown) * SIZE * 1.08 + 8, 14.0)
            if x > MARGIN and x + wide > MARGIN + inner:
                x, y = MARGIN, y + ROW
            self._draw(scene, i, shown, (x, y, wide))
            x += wide + 2
        scene.height = y + ROW + 8
        for note in self.notes:
            for text in fold(note, inner / 11):
                scene.shapes.append(Label(MARGIN, scene.height + 10, text, size=11, role="muted"))
                scene.height += 16
        scene.height += 10
        return scene

    def _draw(self, scene: Scene, i: int, shown: str, place: tuple[float, float, float]) -> None:
        x, y, wide = place
        shade = level(self.values[i], self.low, self.high)
        said = self.describe(i)
        data: tuple[tuple[str, str], ...] = (("v", repr(float(self.values[i]))), ("t", said))
        data = (*data, ("o", self.opens[i])) if self.opens else data
        if i == self.marked:
            scene.shapes.append(Rect(x - 1.5, y - 1.5, wide + 3, ROW - 1, "s1", radius=4))
        role = f"{'d' if self.signed else 'c'}{shade}"
        scene.shapes.append(Rect(x, y, wide, ROW - 4, role, radius=3, data=data, title=said))
        colour = readable(shade, signed=self.signed)
        scene.shapes.append(Label(x + wide / 2, y + 15.5, shown, size=SIZE, anchor="middle", role=colour))

    def _description(self) -> str:
        order = sorted(range(len(self.values)), key=lambda i: -abs(self.values[i]))[:12]
        most = "; ".join(self.describe(i) for i in order)
        return f"{self.reading} Most: {most}. {self.caution}".strip()

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["place", "symbol", "value"])
        writer.writerows(
            [i + 1, s, v] for i, (s, v) in enumerate(zip(self.symbols, self.values, strict=True))
        )
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [f"{i + 1}: {s}", f"{v:.6g}"]
            for i, (s, v) in enumerate(zip(self.symbols, self.values, strict=True))
        ]
        return ["symbol", "value"], rows

    def page_data(self) -> dict[str, Any]:
        return {}

    def text(self, width: int, *, colour: bool) -> str:
        """Below each symbol a block as dark as its value."""
        lines = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width)]
        upper = lower = ""
        for i, symbol in enumerate(self.symbols):
            shown = clip(visible(symbol).replace(" ", "␣"), max(width - 1, 1))
            share = (abs(self.values[i]) if self.signed else self.values[i] - self.low) / (
                (self.high - (0 if self.signed else self.low)) or 1
            )
            mark = SHADES[min(max(round(share * 4), 0), 4)] * len(shown)
            if len(upper) + len(shown) + 1 > width:
                lines += [upper.rstrip(), lower.rstrip()]
                upper = lower = ""
            upper, lower = upper + shown + " ", lower + mark + " "
        lines += [upper.rstrip(), lower.rstrip()]
        lines += [line for note in self.notes for line in wrap(visible(note), width)]
        return "\n".join(clip(line, width) for line in lines) + "\n"
