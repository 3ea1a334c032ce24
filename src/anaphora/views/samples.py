"""Samples at checkpoints: what the model said to the same input as it learned."""

from __future__ import annotations

import csv
import difflib
import io
from dataclasses import dataclass, field
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import MARGIN
from anaphora.views.room import plot_width
from anaphora.views.scene import Label, Path, Scene
from anaphora.views.text import columns, ems, fold, shorten, visible, wrap

TITLE = "Samples while training"
READING = (
    "Each block is one input of the dev data with its reference; below it the model's output at each evaluation. "
    "Words that were not in the output before are set in colour."
)
CAUTION = "A few examples are not a measure: they show what kind of mistakes there are, not how many."
WIDTH = 760.0
LINES_AT_MOST = 12
"""Evaluations shown of each example: the first, the last, and evenly spaced ones between."""


@dataclass(frozen=True)
class Strip:
    """One input, its reference, and the outputs ``(step, text)`` in order."""

    source: str
    reference: str
    outputs: list[tuple[int, str]]


@dataclass
class Film:
    """Texts over time, one strip per input."""

    title: str
    subtitle: str
    strips: list[Strip]
    notes: list[str] = field(default_factory=list)
    reading: str = READING
    caution: str = CAUTION
    _wide: float = WIDTH

    def scene(self) -> Scene:
        self._wide = plot_width(WIDTH, 2 * MARGIN)
        scene = Scene(self._wide + 2 * MARGIN, MARGIN + 46, self.title, self._description())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        scene.shapes.append(
            Label(MARGIN, MARGIN + 34, shorten(self.subtitle, self._wide / 12), size=12, role="muted")
        )
        for strip in self.strips:
            self._draw(scene, strip)
        scene.height += MARGIN
        return scene

    def _draw(self, scene: Scene, strip: Strip) -> None:
        def line(text: str, role: str, *, bold: bool = False) -> None:
            for part in fold(text, self._wide / 13) or [""]:
                scene.height += 18
                scene.shapes.append(Label(MARGIN, scene.height, part, size=13, role=role, bold=bold))

        scene.height += 14
        line(strip.source, "text", bold=True)
        if strip.reference:
            line(f"→ {strip.reference}", "muted")
        before: list[str] = []
        for step, text in strip.outputs:
            self._output(scene, step, visible(text).split(), before)
            before = visible(text).split()

    def _output(self, scene: Scene, step: int, words: list[str], before: list[str]) -> None:
        """The output of one evaluation, new words in colour, broken over as many lines as it takes."""
        scene.height += 18
        scene.shapes.append(
            Label(MARGIN + 52, scene.height, f"{step:,}", size=11, role="muted", anchor="end")
        )
        scene.shapes.append(
            Path(((MARGIN + 60, scene.height - 12), (MARGIN + 60, scene.height + 4)), "grid", width=2.0)
        )
        kept: set[int] = set()
        for block in difflib.SequenceMatcher(a=before, b=words, autojunk=False).get_matching_blocks():
            kept.update(range(block.b, block.b + block.size))
        spans: list[tuple[str, str]] = []

        def flush() -> None:
            whole = "".join(part for part, _ in spans)
            scene.shapes.append(Label(MARGIN + 68, scene.height, whole, size=13, spans=tuple(spans)))
            spans.clear()

        for i, word in enumerate(words):
            line = "".join(part for part, _ in spans) + word
            if spans and 13 * ems(line) > self._wide - 68:
                flush()
                scene.height += 17
            role = "text" if i in kept or not before else "s1"
            spans.append((shorten(word, (self._wide - 68) / 13) + " ", role))
        if spans:
            flush()

    def _description(self) -> str:
        lasts = "; ".join(f"{s.source}: {s.outputs[-1][1]}" for s in self.strips if s.outputs)
        return f"{self.reading} Last outputs: {lasts}. {self.caution}"

    def text(self, width: int, *, colour: bool) -> str:
        lines = [self.title, *wrap(visible(self.subtitle), width), ""]
        for strip in self.strips:
            lines += wrap(visible(strip.source), width)
            if strip.reference:
                lines += wrap("→ " + visible(strip.reference), width)
            margin = max((len(f"{step:,}") for step, _ in strip.outputs), default=0)
            for step, text in strip.outputs:
                head = f"{step:>{margin},} │ "
                parts = wrap(visible(text), width - columns(head)) or [""]
                lines.append(head + parts[0])
                lines += [" " * margin + " │ " + part for part in parts[1:]]
            lines.append("")
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["source", "reference", "step", "output"])
        for strip in self.strips:
            writer.writerows([strip.source, strip.reference, step, text] for step, text in strip.outputs)
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        rows = [[s.source, s.reference, f"{step}", text] for s in self.strips for step, text in s.outputs]
        return ["source", "reference", "step", "output"], rows

    def page_data(self) -> dict[str, Any]:
        return {}


def samples(trace: Trace, *, examples: int = 4) -> Film:
    """The first ``examples`` inputs with their outputs at every evaluation."""
    rows = trace.tables["samples"]
    if not rows:
        raise AnaphoraError(
            "The run has kept no samples yet; they are made at each evaluation (valid_every)."
        )
    found: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
    for row in rows:
        key = (str(row["run"]), str(row.get("source", "")), str(row.get("reference", "")))
        found.setdefault(key, []).append((int(row["step"]), str(row.get("output", ""))))
    several = len(trace.facts["runs"]) > 1
    strips = [
        Strip(f"{run}: {source}" if several else source, reference, _spaced(outputs))
        for (run, source, reference), outputs in list(found.items())[:examples]
    ]
    steps = sorted({int(row["step"]) for row in rows})
    return Film(TITLE, f"{len(steps)} evaluations, steps {steps[0]:,} to {steps[-1]:,}", strips)


def _spaced(outputs: list[tuple[int, str]]) -> list[tuple[int, str]]:
    if len(outputs) <= LINES_AT_MOST:
        return outputs
    places = {round(i * (len(outputs) - 1) / (LINES_AT_MOST - 1)) for i in range(LINES_AT_MOST)}
    return [outputs[i] for i in sorted(places)]
