"""Looking as a sequence: where each glimpse fell on the picture, and what the model believed after it."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.captions import said
from anaphora.views.heatmap import MARGIN, Heatmap
from anaphora.views.panels import Panels
from anaphora.views.raster import Pixels, half_blocks, picture_of, within
from anaphora.views.scene import Dot, Image, Label, Path, Scene
from anaphora.views.text import clip, fold, visible, wrap

TITLE = "Glimpses"
READING = (
    "Above: the picture, the square that each glimpse read and the path from one to the next, numbered in order. Below: "
    "for each step how probable each class was after it; every row sums to 1."
)
CAUTION = (
    "A square is what a glimpse reads most finely; its surroundings may be read coarsely too. The belief also holds "
    "what earlier glimpses saw, so the last square alone does not explain it."
)
HEAD = ["glimpse", "x", "y", "side"]
SIDE = 340.0
FINEST = 256
MOST_STEPS, MOST_LABELS = 60, 24


@dataclass
class Gaze:
    """`glimpses` (steps, 3): centre x, centre y and side of a square, in pixels from the left upper corner."""

    title: str
    subtitle: str
    picture: Pixels
    glimpses: NDArray[np.float64]
    beliefs: list[str]
    """What the model believed most after each glimpse, in words."""
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    def describe(self, step: int) -> str:
        x, y, side = self.glimpses[step]
        return f"glimpse {step + 1}: x {x:.2f}, y {y:.2f}, side {side:.2f} · {self.beliefs[step]}"

    def scene(self) -> Scene:
        height, width = self.picture.shape[:2]
        unit = SIDE / max(height, width)
        total = MARGIN + max(width * unit, 360.0) + MARGIN
        subtitle = fold(self.subtitle, (total - 2 * MARGIN) / 12)
        top = MARGIN + 30 + 17 * len(subtitle)
        words = "; ".join(self.describe(step) for step in range(len(self.glimpses)))
        scene = Scene(
            total, top + height * unit + 40, self.title, f"{self.reading} {words}. {self.caution}".strip()
        )
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, line in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, line, size=12, role="muted"))
        pixels = within(self.picture, FINEST)
        scene.shapes.append(Image(MARGIN, top, width * unit, height * unit, pixels, "the picture"))
        size = f"{width} × {height} pixels"
        scene.shapes.append(Label(MARGIN, top + height * unit + 18, size, size=11, role="muted"))
        for step in range(len(self.glimpses)):
            self._square(scene, step, unit, (MARGIN, top))
        centres = tuple((MARGIN + x * unit, top + y * unit) for x, y, _ in self.glimpses)
        if len(centres) > 1:
            scene.shapes.append(Path(centres, "page", width=3.5))
            scene.shapes.append(Path(centres, "s1", width=1.8))
        taken: list[tuple[float, float]] = []
        for step, (x, y) in enumerate(centres):
            text = self.describe(step)
            data = (("v", str(step + 1)), ("t", text))
            scene.shapes.append(Dot(x, y, 3.6, "s1", data=data, title=text))
            taken.append(_beside(x, y, taken))
        for step, (x, y) in enumerate(taken):
            scene.shapes.append(Dot(x, y, 7.5, "s1"))
            label = str(step + 1)
            scene.shapes.append(Label(x, y + 3.5, label, size=10, role="page", anchor="middle", bold=True))
        return scene

    def _square(self, scene: Scene, step: int, unit: float, corner: tuple[float, float]) -> None:
        """The square, cut off where it leaves the picture."""
        x, y, side = self.glimpses[step]
        height, width = self.picture.shape[:2]
        left, right = (corner[0] + unit * min(max(x + d * side / 2, 0), width) for d in (-1, 1))
        top, bottom = (corner[1] + unit * min(max(y + d * side / 2, 0), height) for d in (-1, 1))
        corners = ((left, top), (right, top), (right, bottom), (left, bottom), (left, top))
        scene.shapes.append(Path(corners, "page", width=2.6))
        scene.shapes.append(Path(corners, "s0", width=1.4))

    def text(self, width: int, *, colour: bool) -> str:
        width = max(width, 24)
        across = min(width, 48)
        lines = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width)]
        drawn = half_blocks(self.picture, across, colour=colour)
        if not colour:
            drawn = self._numbered(drawn, across)
        lines += [*drawn, ""]
        lines += [clip(visible(self.describe(step)), width) for step in range(len(self.glimpses))]
        return "\n".join(lines) + "\n"

    def _numbered(self, lines: list[str], across: int) -> list[str]:
        """The number of each glimpse at its centre; where two fall on the same character, the earlier one stays."""
        cells = [list(line) for line in lines]
        height, width = self.picture.shape[:2]
        for step in reversed(range(min(len(self.glimpses), 35))):
            x, y, _ = self.glimpses[step]
            row = min(max(int(y / height * len(cells)), 0), len(cells) - 1)
            column = min(max(int(x / width * across), 0), across - 1)
            cells[row][column] = "123456789abcdefghijklmnopqrstuvwxyz"[step]
        return ["".join(row) for row in cells]


def _beside(x: float, y: float, taken: list[tuple[float, float]]) -> tuple[float, float]:
    """A place for the number of the glimpse at (x, y), near it and on none of the numbers before."""
    for ring in range(1, 6):
        for part in range(8 * ring):
            angle = 2 * math.pi * part / (8 * ring) - math.pi / 4
            at = (x + 14 * ring * math.cos(angle), y + 14 * ring * math.sin(angle))
            if all(math.dist(at, other) >= 15.5 for other in taken):
                return at
    return x, y


@dataclass
class Looking(Panels):
    """The path and the beliefs one below the other; `names` of all classes and their `shares` (steps, classes)."""

    path: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))
    names: list[str] = field(default_factory=list)
    shares: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    def csv(self) -> str:
        """One line for each glimpse: where it fell, and the probability of every class after it."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*HEAD, *self.names])
        for step, (place, shares) in enumerate(zip(self.path, self.shares, strict=True), start=1):
            writer.writerow([step, *(repr(float(x)) for x in place), *(str(np.float32(p)) for p in shares)])
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        body = [
            [str(step), *(f"{x:.2f}" for x in place), *(f"{p:.4f}" for p in shares)]
            for step, (place, shares) in enumerate(zip(self.path, self.shares, strict=True), start=1)
        ]
        return [*HEAD, *self.names], body


def glimpses(trace: Trace, *, steps: int = 24) -> Looking:
    """The path of the first `steps` glimpses over the picture, and the belief after each."""
    if not 1 <= steps <= MOST_STEPS:
        raise AnaphoraError(f"steps must be from 1 to {MOST_STEPS}, not {steps}.")
    seen = np.asarray(trace.array("glimpses", "step", "coordinate"), np.float64)
    beliefs = np.asarray(trace.array("beliefs", "step", "label"), np.float32)
    if seen.shape[1] != 3 or len(seen) != len(beliefs) or not len(seen) or not np.isfinite(seen).all():
        raise AnaphoraError(
            f"Glimpses are x, y and side of each step and have a belief each; got {seen.shape} and {beliefs.shape}."
        )
    names = trace.tokens.get("label", [str(i) for i in range(beliefs.shape[1])])
    most = [f"{names[int(row.argmax())]} {row.max():.3f}" for row in beliefs]
    path = Gaze("Path", "", picture_of(trace), seen[:steps], most[:steps])
    # the classes that were ever likely, in the order the model has them
    shown = sorted(np.argsort(-beliefs.max(0), kind="stable")[:MOST_LABELS].tolist())
    table = Heatmap(
        title="Belief",
        subtitle="",
        values=beliefs[:steps, shown],
        rows=[str(step + 1) for step in range(len(beliefs[:steps]))],
        columns=[names[i] for i in shown],
        row_title="step",
        column_title="class",
        value_title="probability",
    )
    notes = [f"the first {steps} of {len(seen)} glimpses"] if len(seen) > steps else []
    if len(shown) < len(names):
        notes.append(f"the {len(shown)} of {len(names)} classes that were ever most probable")
    if trace.max_difference is not None:
        notes.append(f"probe against model: max |Δ| = {trace.max_difference:.2g}")
    return Looking(
        title=TITLE,
        subtitle=said(trace),
        charts=[path, table],
        notes=notes,
        reading=READING,
        caution=CAUTION,
        path=seen[:steps],
        names=list(names),
        shares=beliefs[:steps],
    )
