"""Examples one below the other: what was given, what was wanted, what came out, with the differences in colour."""

from __future__ import annotations

import csv
import difflib
import io
from dataclasses import dataclass, field
from typing import Any

from anaphora.views.heatmap import MARGIN
from anaphora.views.room import plot_width
from anaphora.views.scene import Label, Rect, Scene
from anaphora.views.text import clip, ems, fold, shorten, visible, wrap

WIDTH, SIZE = 760.0, 13.0
LINES = 6
"""Lines that one text takes at most."""

Span = tuple[str, bool]


@dataclass(frozen=True)
class Example:
    """One example; ``loss`` is how wrong it is, 0 is right."""

    number: int
    given: str
    wanted: str
    output: str
    loss: float


@dataclass
class Diffs:
    """``examples`` in order; ``opens`` says that their numbers are those of the run's dev examples, which a page can open."""

    title: str
    subtitle: str
    examples: list[Example]
    opens: bool = False
    notes: list[str] = field(default_factory=list)
    reading: str = ""
    caution: str = ""

    def scene(self) -> Scene:
        wide = plot_width(WIDTH, 2 * MARGIN)
        scene = Scene(wide + 2 * MARGIN, MARGIN + 30, self.title, self._description())
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for text in fold(self.subtitle, wide / 12):
            scene.shapes.append(Label(MARGIN, scene.height + 4, text, size=12, role="muted"))
            scene.height += 17
        for one in self.examples:
            self._draw(scene, one, wide)
        for note in self.notes:
            for text in fold(note, wide / 11):
                scene.height += 16
                scene.shapes.append(Label(MARGIN, scene.height, text, size=11, role="muted"))
        scene.height += MARGIN
        return scene

    def _draw(self, scene: Scene, one: Example, wide: float) -> None:
        top = scene.height + 8
        scene.height += 24
        head = f"{one.number}: loss {one.loss:.3g}"
        said = f"example {one.number}, loss {one.loss:.4g}: {clip(visible(one.given), 200)}"
        place = len(scene.shapes)
        scene.shapes.append(Label(MARGIN + 8, scene.height, head, size=11, role="muted"))
        self._lines(scene, [(word, False) for word in visible(one.given).split()], wide, "text", bold=True)
        wanted, output = marked(one.wanted, one.output)
        if one.wanted or one.output:
            self._lines(scene, wanted, wide, "s2", before="wanted ")
            self._lines(scene, output, wide, "s1", before="given ")
        data: tuple[tuple[str, str], ...] = (("v", repr(one.loss)), ("t", said))
        if self.opens:
            data = (*data, ("e", str(one.number)))
        box = Rect(MARGIN, top, wide, scene.height + 8 - top, "clear", radius=4, data=data, title=said)
        scene.shapes.insert(place, box)
        scene.height += 8

    def _lines(
        self,
        scene: Scene,
        words: list[Span],
        wide: float,
        role: str,
        *,
        before: str = "",
        bold: bool = False,
    ) -> None:
        """Words over as many lines as it takes, those that differ in ``role``."""
        rows: list[list[tuple[str, str]]] = [[]]
        used = ems(before) * SIZE
        for word, differs in words or [("∅", False)]:
            shown = shorten(word, (wide - 24) / SIZE) + " "
            size = ems(shown) * SIZE * 1.06
            if rows[-1] and used + size > wide - 24:
                rows.append([])
                used = ems(before) * SIZE
            rows[-1].append((shown, role if differs else "text"))
            used += size
        if len(rows) > LINES:
            rows = [*rows[: LINES - 1], [("…", "muted")]]
        for number, row in enumerate(rows):
            scene.height += 18
            spans = ((before if number == 0 else " " * len(before), "muted"), *row) if before else tuple(row)
            whole = "".join(part for part, _ in spans)
            scene.shapes.append(
                Label(MARGIN + 8, scene.height, whole, size=SIZE, bold=bold, spans=tuple(spans))
            )

    def _description(self) -> str:
        words = "; ".join(
            f"{one.given}: wanted {one.wanted}, given {one.output}" for one in self.examples[:8]
        )
        return f"{self.reading} {words}. {self.caution}".strip()

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["number", "input", "wanted", "given", "loss"])
        writer.writerows([e.number, e.given, e.wanted, e.output, e.loss] for e in self.examples)
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        rows = [[str(e.number), e.given, e.wanted, e.output, f"{e.loss:.4g}"] for e in self.examples]
        return ["example", "input", "wanted", "given", "loss"], rows

    def page_data(self) -> dict[str, Any]:
        return {}

    def text(self, width: int, *, colour: bool) -> str:
        lines = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width), ""]
        for one in self.examples:
            wanted, output = marked(one.wanted, one.output)
            lines += wrap(f"{one.number} (loss {one.loss:.3g}): {visible(one.given)}", width)
            lines += wrap("  wanted " + _plain(wanted), width)
            lines += wrap("  given  " + _plain(output), width)
            lines.append("")
        lines += [line for note in self.notes for line in wrap(visible(note), width)]
        return "\n".join(clip(line, width) for line in lines) + "\n"


def _plain(words: list[Span]) -> str:
    return " ".join(f"[{word}]" if differs else word for word, differs in words) or "∅"


def marked(wanted: str, output: str) -> tuple[list[Span], list[Span]]:
    """The words of both, each with whether it has no counterpart in the other."""
    a, b = visible(wanted).split(), visible(output).split()
    kept = difflib.SequenceMatcher(a=a, b=b, autojunk=False).get_matching_blocks()
    same_a = {i for block in kept for i in range(block.a, block.a + block.size)}
    same_b = {i for block in kept for i in range(block.b, block.b + block.size)}
    return [(w, i not in same_a) for i, w in enumerate(a)], [(w, i not in same_b) for i, w in enumerate(b)]
