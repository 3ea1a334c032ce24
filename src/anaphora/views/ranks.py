"""The most probable symbols at each place, one below the other, each shaded by its probability."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

from anaphora.views.colour import level, readable
from anaphora.views.heatmap import MARGIN
from anaphora.views.room import plot_width, room
from anaphora.views.scene import Label, Rect, Scene
from anaphora.views.text import clip, fold, pad, shorten, visible, wrap

CELL_WIDTH, CELL_HEIGHT = 66.0, 21.0
MOST = 20
"""Places that are drawn; of more the first."""


@dataclass
class Ranks:
    """``ranks[place]`` holds ``(symbol, probability)``, best first."""

    title: str
    subtitle: str
    places: list[str]
    ranks: list[list[tuple[str, float]]]
    notes: list[str] = field(default_factory=list)
    reading: str = "Below each symbol stand the most probable ones, the best on top; darker is more probable."
    caution: str = ""
    word: str = "after"
    """Where the probable symbols stand: ``after`` or ``at`` the place."""

    def __post_init__(self) -> None:
        if len(self.places) > MOST:
            self.notes = [*self.notes, f"the first {MOST} of {len(self.places)} places"]

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["place", "rank", "symbol", "probability"])
        for place, found in zip(self.places, self.ranks, strict=True):
            writer.writerows([place, i + 1, symbol, share] for i, (symbol, share) in enumerate(found))
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        depth = max([len(found) for found in self.ranks] + [0])
        rows = [
            [place, *(f"{symbol} {100 * share:.1f} %" for symbol, share in found)]
            for place, found in zip(self.places, self.ranks, strict=True)
        ]
        return ["place", *(f"rank {i + 1}" for i in range(depth))], rows

    def page_data(self) -> dict[str, Any]:
        return {}

    def scene(self) -> Scene:
        count = min(len(self.places), MOST)
        across = max(1, int(plot_width(CELL_WIDTH * count, 2 * MARGIN) / CELL_WIDTH))
        across, lines = min(across, count), -(-count // max(min(across, count), 1))
        depth = max([len(found) for found in self.ranks] + [0])
        width = max(2 * MARGIN + CELL_WIDTH * across, 320.0 if room() is None else 0.0)
        subtitle = fold(self.subtitle, (width - 2 * MARGIN) / 12)
        top = MARGIN + 52 + 17 * len(subtitle)
        each = CELL_HEIGHT * depth + 34
        foot = top + each * max(lines, 1) - 34
        height = foot + 20 + 16 * len(self.notes)
        words = "; ".join(
            f"{p}: {found[0][0]}" for p, found in zip(self.places, self.ranks, strict=True) if found
        )
        scene = Scene(width, height, self.title, f"{self.reading} Best: {words}.")
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, text in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        for c in range(count):
            x, y = MARGIN + c % across * CELL_WIDTH, top + c // across * each
            name = shorten(visible(self.places[c]), CELL_WIDTH / 12)
            scene.shapes.append(Label(x + 4, y - 8, name, size=12, bold=True, title=visible(self.places[c])))
            self._draw_place(scene, c, x, y)
        for i, note in enumerate(self.notes):
            y = foot + 18 + 16 * i
            scene.shapes.append(Label(MARGIN, y, note, size=11, role="muted"))
        return scene

    def _draw_place(self, scene: Scene, c: int, x: float, top: float) -> None:
        for r, (symbol, share) in enumerate(self.ranks[c]):
            y = top + r * CELL_HEIGHT
            text = f"{self.word} {self.places[c]}: {symbol} {100 * share:.2f} %"
            data = (("v", repr(float(share))), ("t", text))
            shade = level(share, 0.0, 1.0)
            scene.shapes.append(
                Rect(x, y, CELL_WIDTH - 3, CELL_HEIGHT - 3, f"c{shade}", radius=3, data=data, title=text)
            )
            shown = shorten(visible(symbol), CELL_WIDTH / 12)
            scene.shapes.append(Label(x + 5, y + 13, shown, size=11, role=readable(shade)))

    def text(self, width: int, *, colour: bool) -> str:
        lines = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width)]
        label = min(max([len(visible(place)) for place in self.places] + [4]), 16)
        for place, found in zip(self.places, self.ranks, strict=True):
            best = "  ".join(f"{visible(symbol)} {100 * share:.0f} %" for symbol, share in found)
            lines.append(f"{pad(visible(place), label, right=True)} │ {best}")
        lines += [line for note in self.notes for line in wrap(visible(note), width)]
        return "\n".join(clip(line, width) for line in lines) + "\n"
