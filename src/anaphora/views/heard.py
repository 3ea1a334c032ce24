"""A spectrogram with the words below it, and under them lines over the same seconds."""

from __future__ import annotations

import csv
import io
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.views.axes import Axes, ticks
from anaphora.views.colour import DARK, SERIES
from anaphora.views.heatmap import MARGIN
from anaphora.views.lines import Line
from anaphora.views.raster import half_blocks, levels, painted, resized
from anaphora.views.room import plot_width
from anaphora.views.scene import Dot, Image, Label, Path, Rect, Scene
from anaphora.views.text import clip, columns, ems, fold, pad, shorten, visible, wrap

USUAL, TALL, BAND, LOW = 720.0, 170.0, 40.0, 150.0
MOST_NAMES = 9
FINEST = 1440
"""Most columns of pixels; of more frames several become one, their mean."""


@dataclass(frozen=True)
class Word:
    """A word and the seconds it was found at; `confidence` from 0 to 1, or None."""

    word: str
    start: float
    end: float
    confidence: float | None = None

    def describe(self) -> str:
        sure = "" if self.confidence is None else f", confidence {self.confidence:.3f}"
        return f"{self.word}: {self.start:.2f} to {self.end:.2f} s{sure}"


@dataclass
class Heard:
    """`values` (frames, features) from second `start` on, `frame` seconds each; `lines` over seconds."""

    title: str
    subtitle: str
    values: NDArray[np.float32]
    start: float
    frame: float
    words: list[Word]
    lines: list[Line]
    frequencies: list[float] = field(default_factory=list)
    """The frequency of each feature in hertz, where there is such."""
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    def __post_init__(self) -> None:
        finite = self.values[np.isfinite(self.values)]
        # silence may be far below everything else: the colours begin where one value in a hundred is lower
        self.low, self.high = (
            (float(np.percentile(finite, 1)), float(finite.max())) if finite.size else (0.0, 1.0)
        )
        self.end = self.start + self.frame * len(self.values)
        self._wide = USUAL

    def feature(self, number: int) -> str:
        if self.frequencies:
            return f"{self.frequencies[number]:.0f} Hz"
        return f"feature {number + 1}"

    # ------------------------------------------------------------------ file and page

    def scene(self) -> Scene:
        names = [shorten(visible(line.name), 10) for line in self.lines]
        left = MARGIN + 52
        beside = left + 22 + max([ems(name) * 14 for name in names] + [30.0]) + MARGIN
        self._wide = plot_width(USUAL, beside)
        total = self._wide + beside
        subtitle = fold(self.subtitle, (total - 2 * MARGIN) / 12)
        notes = [line for note in self.notes for line in fold(note, (total - 2 * MARGIN) / 11)]
        top = MARGIN + 48 + 17 * len(subtitle)
        below = top + TALL + BAND + (LOW + 34 if self.lines else 0) + 44
        scene = Scene(total, below + 16 * len(notes) + MARGIN / 2, self.title, self._description())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, line in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, line, size=12, role="muted"))
        self._draw_sound(scene, left, top)
        self._draw_words(scene, left, top + TALL)
        if self.lines:
            self._draw_lines(scene, left, top + TALL + BAND + 34)
            self._draw_names(scene, names, left + self._wide + 12, top + TALL + BAND + 34)
        for i, note in enumerate(notes):
            scene.shapes.append(Label(MARGIN, below + 16 * i, note, size=11, role="muted"))
        return scene

    def _draw_sound(self, scene: Scene, left: float, top: float) -> None:
        frames, features = self.values.shape
        fine = self.values if frames <= FINEST else resized(self.values, FINEST, features)
        axes = Axes(left, top, self._wide, TALL, (self.start, self.end), (0.0, float(features)))
        pixels = levels(np.ascontiguousarray(fine.T[::-1]), self.low, self.high)
        scene.shapes.append(Image(left, top, self._wide, TALL, pixels, "the spectrogram"))
        for number in _spaced(features, 5):
            at = axes.y(number + 0.5)
            label = f"{self.frequencies[number]:.0f}" if self.frequencies else str(number + 1)
            scene.shapes.append(Path(((left - 4, at), (left, at)), "muted"))
            scene.shapes.append(Label(left - 8, at + 4, label, size=11, role="muted", anchor="end"))
        unit = "frequency (Hz)" if self.frequencies else "feature"
        scene.shapes.append(Label(left - 40, top - 10, unit, size=12, role="muted"))
        for t in _spaced(frames, 300):
            strongest = int(np.nan_to_num(self.values[t], nan=-np.inf).argmax())
            value = float(self.values[t, strongest])
            text = f"{self.start + t * self.frame:.3f} s: strongest at {self.feature(strongest)}: {value:.4g}"
            x, following = (axes.x(self.start + (t + d) * self.frame) for d in (0, 1))
            data = (("v", repr(value)), ("t", text))
            scene.shapes.append(Rect(x, top, following - x, TALL, "clear", data=data, title=text))

    def _draw_words(self, scene: Scene, left: float, top: float) -> None:
        """Each word from its start to its end; the axis of seconds where nothing stands below."""
        axes = Axes(left, top, self._wide, 0.0, (self.start, self.end), (0.0, 1.0))
        for found in self.words:
            x = max(axes.x(found.start), left)
            wide = max(min(axes.x(found.end), left + self._wide) - x, 2.0)
            text, word = visible(found.describe()), visible(found.word)
            value = found.start if found.confidence is None else found.confidence
            data = (("v", repr(value)), ("t", text))
            scene.shapes.append(Rect(x, top + 5, wide, 20, "grid", radius=3, data=data, title=text))
            if ems(word) * 12 > wide - 2:
                word = shorten(word, (wide - 2) / 12) if wide > 20 else ""
            scene.shapes.append(Label(x + wide / 2, top + 19, word, size=12, anchor="middle", title=text))
            if found.confidence is not None:
                scene.shapes.append(Rect(x, top + 27, wide * min(max(found.confidence, 0), 1), 4, "s0"))
        for second in [] if self.lines else ticks(self.start, self.end, 8):
            label = f"{second:g} s"
            scene.shapes.append(
                Label(axes.x(second), top + 46, label, size=11, role="muted", anchor="middle")
            )

    def _draw_lines(self, scene: Scene, left: float, top: float) -> None:
        axes = Axes(left, top, self._wide, LOW, (self.start, self.end), (0.0, 1.0))
        axes.draw(scene, "seconds", "")
        scene.shapes.append(Label(left - 40, top - 14, "p", size=12, role="muted"))
        for found in self.words:
            for second in (found.start, found.end):
                if self.start <= second <= self.end:
                    at = axes.x(second)
                    scene.shapes.append(Path(((at, top), (at, top + LOW)), "grid"))
        for number, line in enumerate(self.lines):
            role = f"s{number % SERIES}"
            places = tuple((axes.x(x), axes.y(y)) for x, y in line.points())
            if len(places) > 1:
                scene.shapes.append(Path(places, role, width=1.8))
            for (x, y), place in zip(line.points(), places, strict=True):
                if y >= 0.5 or len(places) <= 60:
                    text = f"{line.name}, {x:.3f} s: {y:.4f}"
                    data = (("v", repr(y)), ("t", visible(text)))
                    scene.shapes.append(Dot(*place, 2.2, role, data=data, title=text))
            if number:  # the first line is the blank's
                self._draw_spikes(scene, line, axes, role)

    def _draw_spikes(self, scene: Scene, line: Line, axes: Axes, role: str) -> None:
        """The symbol's name over each run of steps at which it is more probable than all others together."""
        sure = np.asarray(line.y) > 0.5
        edges = np.flatnonzero(np.diff(np.concatenate([[False], sure, [False]]))).reshape(-1, 2)
        for first, end in edges.tolist():
            at = (axes.x(line.x[first]) + axes.x(line.x[end - 1])) / 2
            name = shorten(visible(line.name), 4)
            scene.shapes.append(Label(at, axes.top - 4, name, size=11, role=role, anchor="middle", bold=True))

    def _draw_names(self, scene: Scene, names: list[str], x: float, top: float) -> None:
        if len(names) > MOST_NAMES:
            more = f"+ {len(names) - MOST_NAMES + 1}"
            scene.shapes.append(Label(x + 11, top + 12 + 17 * (MOST_NAMES - 1), more, size=13, role="muted"))
            names = names[: MOST_NAMES - 1]
        for number, name in enumerate(names):
            y = top + 12 + 17 * number
            scene.shapes.append(Dot(x + 2, y - 4.5, 3.8, f"s{number % SERIES}"))
            scene.shapes.append(Label(x + 11, y, name, size=13, role=f"s{number % SERIES}", bold=True))

    def _description(self) -> str:
        words = "; ".join(word.describe() for word in self.words)
        return f"{self.reading} {words or 'No words were found'}. {self.caution}"

    def page_data(self) -> dict[str, Any]:
        return {}

    # ------------------------------------------------------------------ numbers

    def csv(self) -> str:
        """Three tables, each under a line with its name: words, posteriors, and the spectrogram itself."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        out.write("# words\n")
        writer.writerow(["word", "start", "end", "confidence"])
        writer.writerows(
            [w.word, w.start, w.end, "" if w.confidence is None else w.confidence] for w in self.words
        )
        if self.lines:
            out.write("\n# posteriors\n")
            writer.writerow(["second", *(line.name for line in self.lines)])
            rows = zip(self.lines[0].x, *(line.y for line in self.lines), strict=True)
            writer.writerows([f"{x:.6g}", *(repr(y) for y in ys)] for x, *ys in rows)
        out.write("\n# spectrogram\n")
        writer.writerow(["second", *(self.feature(i) for i in range(self.values.shape[1]))])
        for t, row in enumerate(self.values):
            writer.writerow([f"{self.start + t * self.frame:.6g}", *(str(np.float32(v)) for v in row)])
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The words; without any, the likeliest symbol at each moment."""
        if self.words or not self.lines:
            body = [
                [
                    w.word,
                    f"{w.start:.3f}",
                    f"{w.end:.3f}",
                    "" if w.confidence is None else f"{w.confidence:.4f}",
                ]
                for w in self.words
            ]
            return ["word", "start (s)", "end (s)", "confidence"], body
        body = []
        for i, x in enumerate(self.lines[0].x):
            best = max(self.lines, key=lambda line: line.y[i])
            body.append([f"{x:.3f}", best.name, f"{best.y[i]:.4f}"])
        return ["second", "symbol", "probability"], body

    # ------------------------------------------------------------------ terminal

    def text(self, width: int, *, colour: bool) -> str:
        width = max(width, 32)
        label = 9
        room = width - label
        lines = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width), ""]
        lines += self._sound_blocks(label, room, colour)
        lines.append(" " * label + self._word_line(room))
        for line in self.lines:
            lines.append(pad(visible(line.name), label - 1, right=True) + " " + self._spark(line, room))
        ends = f"{self.start:g}", f"{self.end:g} s"
        lines.append(" " * label + ends[0] + pad(ends[1], room - len(ends[0]), right=True))
        lines += [clip(visible(word.describe()), width) for word in self.words]
        lines += [part for note in self.notes for part in wrap(visible(note), width)]
        return "\n".join(lines) + "\n"

    def _sound_blocks(self, label: int, room: int, colour: bool) -> list[str]:
        features = self.values.shape[1]
        tall = max(1, min(10, features))
        small = resized(np.nan_to_num(self.values, nan=self.low).T[::-1], 2 * tall, room)
        # without colour a character is as dense as the sound is strong, and there are but five of them: the weaker half
        # of all values is left blank
        steps = levels(small, self.low if colour else float(np.median(small)), self.high)
        pixels = painted(steps, DARK) if colour else np.repeat(steps[..., None] * np.uint8(7), 3, axis=2)
        drawn = half_blocks(pixels, room, colour=colour)
        names = {0: self.feature(features - 1), tall - 1: self.feature(0)}
        names = {row: name.removeprefix("feature ") for row, name in names.items()}
        return [pad(names.get(i, ""), label - 1, right=True) + " " + row for i, row in enumerate(drawn)]

    def _word_line(self, room: int) -> str:
        """Words at the columns where they start; one that would run into the word before it is moved behind it."""
        line = ""
        for word in self.words:
            at = int((word.start - self.start) / max(self.end - self.start, 1e-9) * room)
            line += " " * max(at - columns(line), 1 if line else 0) + visible(word.word)
        return clip(line, room)

    def _spark(self, line: Line, room: int) -> str:
        """The greatest probability that falls into each column, as the height of a block."""
        if not line.x:
            return ""
        step = line.x[1] - line.x[0] if len(line.x) > 1 else self.end - self.start
        edges = self.start + np.arange(room + 1) * (self.end - self.start) / room
        numbers = np.clip((edges - line.x[0]) / step + 0.5 + 1e-9, 0, len(line.x) - 1).astype(int)
        values = np.asarray(line.y)
        heights = [values[a : max(b, a + 1)].max() for a, b in itertools.pairwise(numbers.tolist())]
        blocks = " ▁▂▃▄▅▆▇█"
        return "".join(blocks[round(8 * min(max(float(h), 0.0), 1.0))] for h in heights).rstrip()


def _spaced(count: int, most: int) -> list[int]:
    """At most `most` numbers below `count`, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
