"""New pictures as films: the canvas after every stroke, and where the stroke was put."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.views.heatmap import MARGIN
from anaphora.views.picture import Picture
from anaphora.views.raster import Pixels, half_blocks
from anaphora.views.scene import Image, Label, Path, Scene
from anaphora.views.text import clip, fold, visible, wrap

TITLE = "Drawn stroke by stroke"
READING = (
    "Each row is one new picture, each column its canvas after one more stroke; the square shows where the stroke was put. "
    "All pictures were drawn from random numbers: nothing was read."
)
CAUTION = "The bound is an upper bound of −log p, so the true figure is no worse. Canvases show probabilities of ink, not drawn pixels."
SIDE, GAP = 64.0, 8.0


def picture(found: Mapping[str, Any]) -> Picture:
    """The picture of what the study of DRAW found."""
    subtitle = (
        f"{found['corpus']} · bound {found['bound']:.1f} nats a picture; pixels one by one from the mean picture: "
        f"{found['independent']:.1f}"
    )
    film, windows = np.array(found["film"]), np.array(found["windows"])
    return Picture(Film(TITLE, subtitle, film, windows, reading=READING, caution=CAUTION), name="draw")


@dataclass
class Film:
    """``film`` (samples, strokes, rows, columns, channels) from 0 to 1, ``windows`` (samples, strokes, 3)."""

    title: str
    subtitle: str
    film: NDArray[np.float64]
    windows: NDArray[np.float64]
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    def frame(self, sample: int, stroke: int) -> Pixels:
        """A canvas in red, green and blue; one channel is black ink on white."""
        values = self.film[sample, stroke]
        grey = values.shape[2] != 3
        shown = np.repeat(1 - values.mean(2, keepdims=True), 3, axis=2) if grey else values
        pixels: Pixels = np.rint(255 * np.clip(shown, 0, 1)).astype(np.uint8)
        return pixels

    def scene(self) -> Scene:
        samples, strokes, rows, columns = self.film.shape[:4]
        unit = SIDE / max(rows, columns)
        width = max(2 * MARGIN + strokes * (SIDE + GAP), 360.0)
        subtitle = fold(self.subtitle, (width - 2 * MARGIN) / 7)
        top = MARGIN + 40 + 17 * len(subtitle)
        scene = Scene(
            width,
            top + samples * (SIDE + GAP) + MARGIN,
            self.title,
            f"{self.reading} {self.subtitle} {self.caution}",
        )
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, text in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        for stroke in range(strokes):
            left = MARGIN + stroke * (SIDE + GAP)
            scene.shapes.append(Label(left, top - 5, str(stroke + 1), size=11, role="muted"))
            for sample in range(samples):
                up = top + sample * (SIDE + GAP)
                x, y, side = self.windows[sample, stroke]
                text = f"picture {sample + 1}, stroke {stroke + 1}: x {x:.1f}, y {y:.1f}, side {side:.1f}"
                pixels = self.frame(sample, stroke)
                scene.shapes.append(Image(left, up, columns * unit, rows * unit, pixels, text))
                across = [left + unit * min(max(x + d * side / 2, 0), columns) for d in (-1, 1)]
                down = [up + unit * min(max(y + d * side / 2, 0), rows) for d in (-1, 1)]
                corners = ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))
                scene.shapes.append(Path(tuple((across[a], down[b]) for a, b in corners), "s1", width=1.0))
        return scene

    def text(self, width: int, *, colour: bool) -> str:
        lines = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width)]
        each = max(6, min(20, width // max(self.film.shape[1], 1) - 1))
        shown = min(self.film.shape[1], max(1, (width + 1) // (each + 1)))
        for sample in range(len(self.film)):
            frames = [
                half_blocks(self.frame(sample, stroke), each, colour=colour) for stroke in range(-shown, 0)
            ]
            lines += [" ".join(row) for row in zip(*frames, strict=True)]
            lines.append("")
        return "\n".join(line if colour else clip(line, width) for line in lines) + "\n"

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["picture", "stroke", "x", "y", "side"])
        for (sample, stroke), _ in np.ndenumerate(self.windows[..., 0]):
            writer.writerow([sample + 1, stroke + 1, *self.windows[sample, stroke]])
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        rows = list(csv.reader(io.StringIO(self.csv())))
        return rows[0], rows[1:]

    def page_data(self) -> dict[str, Any]:
        return {}
