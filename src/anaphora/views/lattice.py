"""CTC: what each frame says, where the target's probability flows, and how the best path collapses to the text."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.axes import Axes
from anaphora.views.colour import SERIES, level
from anaphora.views.heatmap import MARGIN, Heatmap
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.room import plot_width
from anaphora.views.scene import Dot, Label, Path, Rect, Scene
from anaphora.views.states import heard_once
from anaphora.views.text import ems, fold, shorten, visible

TITLE = "CTC posteriors and lattice"
READING = (
    "All three share one time axis. First: the probability of each symbol at each frame; the blank (grey, dashed) is usually high "
    "and symbols are short spikes. Then the lattice: rows are the target with blanks between, a cell is the share of all paths' "
    "probability that passes there, so each column sums to 1; arrows follow the most probable single path. Last, the collapse: "
    "the path frame by frame, repeats merged, blanks dropped."
)
CAUTION = "Spikes say when the model became sure, which is often later than when the sound began."
MOST_SYMBOLS, MOST_FRAMES = 8, 200
LOW = 150.0


def ctc(trace: Trace, *, frames: int = MOST_FRAMES) -> Panels:
    """Lines of the most probable symbols over the frames, the lattice of the target, and the collapse of the best path."""
    if not 1 <= frames <= 2000:
        raise AnaphoraError(f"frames must be from 1 to 2000, not {frames}.")
    posteriors = np.asarray(trace.array("posteriors", "time", "symbol"))[:frames]
    blank = int(trace.facts.get("blank", 0))
    order = [blank, *(int(s) for s in np.argsort(-posteriors.max(0), kind="stable") if int(s) != blank)]
    seconds = float(trace.facts.get("posterior_seconds", 0.0))
    unit, x_title = (seconds, "seconds") if seconds > 0 else (1.0, "frame")
    times = [round(t * unit, 6) for t in range(len(posteriors))]
    lines = [
        Line(
            "blank" if s == blank else trace.tokens["symbol"][s],
            times,
            posteriors[:, s].tolist(),
            colour=SERIES - 1 if s == blank else (number - 1) % (SERIES - 1),
            dashed=s == blank,
        )
        for number, s in enumerate(order[:MOST_SYMBOLS])
    ]
    lattice = np.asarray(trace.array("lattice", "state", "time"), np.float32)[:, :frames]
    path = [int(s) for s in trace.array("best_path", "time")[:frames]]
    states = list(trace.tokens["state"])
    heat = Heatmap(
        title="Lattice",
        subtitle="share of all paths' probability in each state · best path: "
        + " ".join(states[s] for s in path[:60])
        + (" …" if len(path) > 60 else ""),
        values=lattice,
        rows=[f"{i}: {name}" for i, name in enumerate(states)],
        columns=[f"{t:g}" for t in times],
        row_title="state",
        column_title=x_title,
        value_title="share of probability",
        path=path,
    )
    target = " ".join(str(name) for name in trace.facts.get("target", []))
    words = f"target {target} · log p = {float(trace.facts['log_likelihood']):.4f}, the sum over all paths"
    cut = trace.arrays["posteriors"].values.shape[0] - len(posteriors)
    notes = [f"the first {len(posteriors)} of {len(posteriors) + cut} frames"] if cut else []
    notes += heard_once(trace)
    charts: list[object] = [Lines("Posteriors", "", x_title, "probability", lines), heat]
    return Spelled(TITLE, words, charts, notes, READING, CAUTION, lines, lattice, states, path, x_title)


@dataclass
class Spelled(Panels):
    """Posteriors, lattice and collapse over one time axis; as text and as numbers they are panels like others."""

    lines: list[Line] = field(default_factory=list)
    lattice: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    states: list[str] = field(default_factory=list)
    path: list[int] = field(default_factory=list)
    x_title: str = "frame"

    def scene(self) -> Scene:
        left = MARGIN + 64
        names = [shorten(visible(line.name), 10) for line in self.lines]
        beside = left + 24 + max([ems(name) * 14 for name in names] + [30.0]) + MARGIN
        wide = plot_width(720.0, beside)
        total = wide + beside
        subtitle = fold(self.subtitle, (total - 2 * MARGIN) / 12)
        notes = [line for note in self.notes for line in fold(note, (total - 2 * MARGIN) / 11)]
        top = MARGIN + 52 + 17 * len(subtitle)
        row = min(max(300.0 / max(len(self.states), 1), 9.0), 20.0)
        below = top + LOW + 52
        collapse = below + row * len(self.states) + 34
        step = self._step()
        axes = Axes(left, top, wide, LOW, (0.0, step * len(self.path)), (0.0, 1.0))
        foot = collapse + 96
        scene = Scene(total, foot + 16 * len(notes) + MARGIN / 2, self.title, self._description())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=19, bold=True))
        for i, text in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        self._draw_lines(scene, axes, names, step)
        self._draw_lattice(scene, axes, below, row, step)
        self._draw_collapse(scene, axes, collapse, step)
        for i, note in enumerate(notes):
            scene.shapes.append(Label(MARGIN, foot + 16 * i, note, size=11, role="muted"))
        return scene

    def _step(self) -> float:
        times = self.lines[0].x if self.lines else []
        return times[1] - times[0] if len(times) > 1 else 1.0

    def _description(self) -> str:
        return f"{self.reading} {self.subtitle}. The best path collapses to {self.collapsed() or 'nothing'}. {self.caution}"

    def runs(self) -> list[tuple[int, int, str]]:
        """The best path with repeats merged: first frame, frame after the last, symbol; the states of a blank are even."""
        found = []
        for state, group in itertools.groupby(enumerate(self.path), key=lambda pair: pair[1]):
            frames = [t for t, _ in group]
            found.append((frames[0], frames[-1] + 1, "" if state % 2 == 0 else self.states[state]))
        return found

    def collapsed(self) -> str:
        """What the path spells."""
        return "".join(symbol for _, _, symbol in self.runs()).replace("▁", " ").strip()

    def _draw_lines(self, scene: Scene, axes: Axes, names: list[str], step: float) -> None:
        axes.draw(scene, "", "probability")
        for number, line in enumerate(self.lines):
            role = f"s{line.colour or 0}"
            points = tuple((axes.x(x + step / 2), axes.y(y)) for x, y in line.points())
            scene.shapes.append(Path(points, role, width=1.8, dashed=line.dashed))
            for (x, y), place in zip(line.points(), points, strict=True):
                if y >= 0.05:
                    text = f"{line.name}, {x:g} {self.x_title}: {y:.4f}"
                    data = (("v", repr(y)), ("t", visible(text)))
                    scene.shapes.append(Dot(*place, 2.0, role, data=data, title=text))
            at, y = axes.left + axes.width + 16, axes.top + 12 + 17 * number
            scene.shapes.append(
                Path(((at - 5, y - 4.5), (at + 7, y - 4.5)), role, width=2.5, dashed=line.dashed)
            )
            scene.shapes.append(Label(at + 12, y, names[number], size=13, role=role, bold=True))

    def _draw_lattice(self, scene: Scene, axes: Axes, top: float, row: float, step: float) -> None:
        wide = axes.width / max(len(self.path), 1)
        scene.shapes.append(Label(MARGIN, top - 10, "Lattice", size=12, role="muted"))
        high = max(float(self.lattice.max(initial=0.0)), 1e-9)
        for s, name in enumerate(self.states):
            y = top + s * row
            symbol = "–" if s % 2 == 0 else shorten(visible(name), 4)
            role = "muted" if s % 2 == 0 else "text"
            scene.shapes.append(
                Label(axes.left - 8, y + row * 0.75, symbol, size=min(12.0, row), role=role, anchor="end")
            )
            for t in range(self.lattice.shape[1]):
                share = float(self.lattice[s, t])
                text = f"{'blank' if s % 2 == 0 else name}, {t * step:g} {self.x_title}: {share:.4f}"
                data = (("v", repr(share)), ("t", visible(text)))
                place = (axes.left + t * wide, y)
                shade = f"c{level(share, 0.0, high)}"
                scene.shapes.append(Rect(*place, wide, row, shade, data=data if share >= 1e-4 else ()))
        points = tuple((axes.left + (t + 0.5) * wide, top + (s + 0.5) * row) for t, s in enumerate(self.path))
        scene.shapes.append(Path(points, "page", width=3.5))
        scene.shapes.append(Path(points, "s1", width=1.6))
        for (_, y0), (x1, y1) in itertools.pairwise(points):
            if y1 > y0:  # an arrow where the path moves on
                head = ((x1 - 5, y1 - 1.5), (x1, y1 + 2.5), (x1 + 1.5, y1 - 4.0))
                scene.shapes.append(Path(head, "s1", filled=True))

    def _draw_collapse(self, scene: Scene, axes: Axes, top: float, step: float) -> None:
        """Frame by frame, merged, and without blanks."""
        wide = axes.width / max(len(self.path), 1)
        for i, title in enumerate(("path", "merged", "text")):
            scene.shapes.append(
                Label(axes.left - 8, top + 24 * i + 12, title, size=11, role="muted", anchor="end")
            )
        colours = {line.name: f"s{line.colour}" for line in self.lines}
        for t, state in enumerate(self.path):
            role = "grid" if state % 2 == 0 else colours.get(self.states[state], "text")
            scene.shapes.append(Rect(axes.left + t * wide + 0.3, top + 4, max(wide - 0.6, 0.5), 10, role))
        for first, end, symbol in self.runs():
            middle = axes.left + (first + end) / 2 * wide
            shown = visible(symbol) if symbol else "–"
            scene.shapes.append(
                Label(middle, top + 36, shown, size=11, role="text" if symbol else "muted", anchor="middle")
            )
        scene.shapes.append(Label(axes.left, top + 60, visible(self.collapsed()), size=13, bold=True))
        seconds = Axes(axes.left, top + 64, axes.width, 0.0, axes.x_range, (0.0, 1.0))
        for value, at in seconds.places():
            scene.shapes.append(Label(at, top + 80, value, size=11, role="muted", anchor="middle"))
        right = axes.left + axes.width + 8
        scene.shapes.append(Label(right, top + 80, self.x_title, size=11, role="muted"))
