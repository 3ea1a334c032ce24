"""A film strip: the picture once for each word, bright where the model looked when it wrote that word."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.blocks import shade
from anaphora.views.heatmap import MARGIN
from anaphora.views.raster import Pixels, half_blocks, picture_of, resized, within
from anaphora.views.scene import Image, Label, Path, Rect, Scene
from anaphora.views.text import fold, pad, shorten, visible, wrap

TITLE = "Where it looked, word by word"
READING = (
    "The picture once for each word, of the output or of the question that was asked: in full colour where the attention "
    "went when that word was written or read, grey where it did not go. The frame is the place with the most attention, "
    "and the number its share; over all places the shares of a word sum to 1."
)
CAUTION = (
    "Each picture is scaled to its own strongest place, so an even attention looks as bright as a sharp one: read the "
    "number. A place of the grid has seen more of the picture than the square that stands for it."
)
SIDE, GAP, ACROSS = 136.0, 14.0, 5
FINEST = 160
"""Most pixels along a side of a picture of the strip."""
GREY, LEAST = 128.0, 0.12
"""What a place without attention fades to, and how much of its colour it keeps."""
MOST_WORDS = 60


@dataclass
class FilmStrip:
    """`weights` (words, rows, columns) of a grid over `picture`."""

    title: str
    subtitle: str
    picture: Pixels
    words: list[str]
    weights: NDArray[np.float64]
    notes: list[str] = field(default_factory=list)
    reading: str = READING
    caution: str = CAUTION

    def peak(self, number: int) -> tuple[int, int]:
        """Row and column (from 0) of the place with the most attention for a word."""
        row, column = np.unravel_index(int(self.weights[number].argmax()), self.weights.shape[1:])
        return int(row), int(column)

    def frame(self, number: int, picture: Pixels) -> Pixels:
        """The picture faded to grey by how little attention each place had, relative to the strongest one."""
        share = self.weights[number] / max(float(self.weights[number].max()), 1e-30)
        kept = LEAST + (1 - LEAST) * resized(share, *picture.shape[:2])[..., None]
        return np.rint(kept * picture + (1 - kept) * GREY).astype(np.uint8)

    def describe(self, number: int) -> str:
        row, column = self.peak(number)
        return f"{self.weights[number].max():.2f} at row {row + 1}, column {column + 1}"

    # ------------------------------------------------------------------ file and page

    def scene(self) -> Scene:
        height, width = self.picture.shape[:2]
        wide, tall = SIDE * min(1.0, width / height), SIDE * min(1.0, height / width)
        step, down = SIDE + GAP, tall + 52
        across = min(ACROSS, len(self.words) + 1)
        total = max(2 * MARGIN + across * step - GAP, 400.0)
        subtitle = fold(self.subtitle, (total - 2 * MARGIN) / 12)
        notes = [line for note in self.notes for line in fold(note, (total - 2 * MARGIN) / 11)]
        top = MARGIN + 30 + 17 * len(subtitle)
        rows = -(-(len(self.words) + 1) // across)
        scene = Scene(
            total, top + rows * down + 16 * len(notes) + MARGIN / 2, self.title, self._description()
        )
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, line in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, line, size=12, role="muted"))
        small = within(self.picture, FINEST)
        scene.shapes.append(Image(MARGIN, top, wide, tall, small, "the picture"))
        scene.shapes.append(Label(MARGIN, top + tall + 17, "the picture", size=13, role="muted"))
        for number in range(len(self.words)):
            r, c = divmod(number + 1, across)
            self._draw(scene, number, small, (MARGIN + c * step, top + r * down, wide, tall))
        for i, note in enumerate(notes):
            at = top + rows * down + 16 * i + 4
            scene.shapes.append(Label(MARGIN, at, note, size=11, role="muted"))
        return scene

    def _draw(
        self, scene: Scene, number: int, picture: Pixels, box: tuple[float, float, float, float]
    ) -> None:
        x, y, wide, tall = box
        rows, across = self.weights.shape[1:]
        high, broad = tall / rows, wide / across
        word = visible(self.words[number])
        scene.shapes.append(Image(x, y, wide, tall, self.frame(number, picture)))
        row, column = self.peak(number)
        left, top = x + column * broad, y + row * high
        corners = (
            (left, top),
            (left + broad, top),
            (left + broad, top + high),
            (left, top + high),
            (left, top),
        )
        scene.shapes.append(Path(corners, "page", width=4))
        scene.shapes.append(Path(corners, "s1", width=2))
        for (r, c), value in np.ndenumerate(self.weights[number]):
            text = f"{word}: row {r + 1}, column {c + 1}: {value:.4f}"
            place = (x + c * broad, y + r * high, broad, high)
            scene.shapes.append(
                Rect(*place, "clear", data=(("v", repr(float(value))), ("t", text)), title=text)
            )
        label = shorten(word, SIDE / 13.5)
        scene.shapes.append(Label(x, y + tall + 17, label, size=13, bold=True, title=word))
        scene.shapes.append(Label(x, y + tall + 33, self.describe(number), size=10, role="muted"))

    def _description(self) -> str:
        words = "; ".join(f"{word}: {self.describe(i)}" for i, word in enumerate(self.words))
        return f"{self.reading} {words}. {self.caution}"

    def page_data(self) -> dict[str, Any]:
        return {}

    # ------------------------------------------------------------------ numbers

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["number", "word", "row", "column", "attention"])
        for i, word in enumerate(self.words):
            for (r, c), value in np.ndenumerate(self.weights[i]):
                writer.writerow([i + 1, word, r + 1, c + 1, repr(float(value))])
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        """One line for each word, one column for each place of the grid."""
        rows, across = self.weights.shape[1:]
        head = ["word", *(f"{r + 1},{c + 1}" for r in range(rows) for c in range(across))]
        body = [
            [word, *(f"{value:.4f}" for value in self.weights[i].ravel())]
            for i, word in enumerate(self.words)
        ]
        return head, body

    # ------------------------------------------------------------------ terminal

    def text(self, width: int, *, colour: bool) -> str:
        """Pictures side by side: in half blocks, or without colour the attention of each place as a shade."""
        width = max(width, 24)
        across = self.weights.shape[2]
        wide = 20 if colour else min(max(2 * across, 12), width)
        heading = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width), ""]
        cells: list[list[str]] = []
        if colour:
            cells.append(
                [*half_blocks(self.picture, wide, colour=True), pad("the picture", wide), " " * wide]
            )
        for number, word in enumerate(self.words):
            if colour:
                drawn = half_blocks(self.frame(number, within(self.picture, FINEST)), wide, colour=True)
            else:
                most = max(float(self.weights[number].max()), 1e-30)
                drawn = [
                    pad("".join(shade(float(v) / most) * 2 for v in line), wide)
                    for line in self.weights[number]
                ]
            row, column = self.peak(number)
            shown = f"{self.weights[number].max():.2f} at {row + 1},{column + 1}"
            cells.append([*drawn, pad(visible(word), wide), pad(shown, wide)])
        each = max(1, (width + 2) // (wide + 2))
        lines = []
        for first in range(0, len(cells), each):
            part = cells[first : first + each]
            lines += ["  ".join(cell[i] for cell in part).rstrip() for i in range(len(part[0]))]
            lines.append("")
        foot = ["the strongest place of each word, its share and its row and column", *self.notes]
        lines += [line for note in foot for line in wrap(visible(note), width)]
        return "\n".join([*heading, *lines]) + "\n"


def captions(trace: Trace, *, words: int = 24) -> FilmStrip:
    """The picture with the attention over it for each of the first `words` words."""
    if not 1 <= words <= MOST_WORDS:
        raise AnaphoraError(f"words must be from 1 to {MOST_WORDS}, not {words}.")
    picture = picture_of(trace)
    attention = np.asarray(trace.array("attention", "output", "place"), np.float64)
    rows, columns = _grid(trace, attention.shape[1])
    names = [
        name.removeprefix("▁") or name  # the mark of a word's beginning, where symbols are words
        for name in trace.tokens.get("output", [str(i + 1) for i in range(len(attention))])
    ]
    if not names or not np.isfinite(attention).all():
        raise AnaphoraError("The trace's attention has no words, or numbers that are not finite.")
    notes = [f"the first {words} of {len(names)} words"] if len(names) > words else []
    difference = trace.max_difference
    if difference is not None:
        notes.append(f"probe against model: max |Δ| = {difference:.2g}")
    weights = attention[:words].reshape(-1, rows, columns)
    return FilmStrip(TITLE, said(trace, names), picture, list(names[:words]), weights, notes)


def said(trace: Trace, words: list[str] | None = None) -> str:
    """What was asked, answered and wanted, for a picture's second line."""
    facts = trace.facts
    asked = str(facts.get("text", "")).strip()
    example = f"dev example {facts['example']}" if "example" in facts else ""
    output = str(facts.get("output", "")) or " ".join(word for word in words or [] if word != "</s>")
    wanted = f"wanted: {facts['reference']}" if facts.get("reference") else ""
    return " · ".join(
        part for part in (example, asked, f"output: {output}" if output else "", wanted) if part
    )


def _grid(trace: Trace, places: int) -> tuple[int, int]:
    grid = trace.facts.get("grid")
    if not isinstance(grid, (list, tuple)) or len(grid) != 2:
        raise AnaphoraError(
            "The trace does not say how its places form a grid: facts['grid'] = [rows, columns]."
        )
    rows, columns = int(grid[0]), int(grid[1])
    if rows < 1 or columns < 1 or rows * columns != places:
        raise AnaphoraError(f"A grid of {rows} × {columns} has not the {places} places of the attention.")
    return rows, columns
