"""The beam tree: every hypothesis the search looked at, step by step, kept, finished or dropped."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.probe.answers import finished_paths, outputs_of
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import MARGIN
from anaphora.views.scene import Label, Path, Rect, Scene
from anaphora.views.states import facts_line
from anaphora.views.text import clip, fold, shorten, visible, wrap

TITLE = "Beam tree"
READING = (
    "From left to right the search extends what it kept. The thicker a branch, the more probable its symbol; "
    "coloured: on the way to the output; grey: dropped for lack of room. Numbers are scores of the whole "
    "hypothesis up to there. Below, all that was finished, best first; what reads the same is counted once."
)
CAUTION = (
    "What a beam drops it never sees again, so the best output found need not be the best there is; a wider beam "
    "may also find outputs that score better and read worse."
)
COLUMN, ROW = 132.0, 22.0
MOST_OUTPUTS = 10


@dataclass
class Node:
    """One symbol of one hypothesis. ``parent`` is its parent's place in the list of all nodes, −1 at the start."""

    step: int
    piece: str
    score: float
    log_prob: float
    fate: str
    parent: int
    best: bool = False
    y: float = 0.0


@dataclass
class Tree:
    """Nodes in the order of their steps; the first column are the first symbols."""

    title: str
    subtitle: str
    nodes: list[Node]
    outputs: list[tuple[str, float]]
    notes: list[str] = field(default_factory=list)
    reading: str = READING
    caution: str = CAUTION

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["node", "step", "symbol", "score", "log_prob", "fate", "parent"])
        for i, n in enumerate(self.nodes):
            writer.writerow(
                [i, n.step + 1, n.piece, n.score, n.log_prob, n.fate, n.parent if n.parent >= 0 else ""]
            )
        return out.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        return ["output", "score"], [[text, f"{score:.4g}"] for text, score in self.outputs]

    def page_data(self) -> dict[str, Any]:
        return {}

    def scene(self) -> Scene:
        leaves = self._place()
        steps = 1 + max((node.step for node in self.nodes), default=0)
        width = max(2 * MARGIN + COLUMN * (steps + 1), 420.0)
        subtitle = fold(self.subtitle, (width - 2 * MARGIN) / 12)
        top = MARGIN + 44 + 17 * len(subtitle)
        height = top + leaves * ROW + 26 + 18 * (len(self.outputs) + 1) + 16 * len(self.notes)
        finals = "; ".join(f"{text} ({score:.3g})" for text, score in self.outputs)
        scene = Scene(width, height, self.title, f"{self.reading} Outputs: {finals}. {self.caution}")
        scene.shapes.append(Label(MARGIN, MARGIN + 12, self.title, size=17, bold=True))
        for i, text in enumerate(subtitle):
            scene.shapes.append(Label(MARGIN, MARGIN + 34 + 17 * i, text, size=12, role="muted"))
        for node in self.nodes:
            self._draw(scene, node, top)
        y = top + leaves * ROW + 26
        scene.shapes.append(Label(MARGIN, y, "Outputs, best first", size=12, bold=True))
        for i, (text, score) in enumerate(self.outputs):
            words = f"{score:.3f}  {shorten(visible(text), width / 14)}"
            scene.shapes.append(Label(MARGIN, y + 18 * (i + 1), words, size=12))
        for i, note in enumerate(self.notes):
            scene.shapes.append(
                Label(MARGIN, y + 18 * (len(self.outputs) + 1) + 16 * i, note, size=11, role="muted")
            )
        return scene

    def _draw(self, scene: Scene, node: Node, top: float) -> None:
        x, y = MARGIN + 20 + COLUMN * node.step, top + node.y * ROW
        role = "s0" if node.best else "grid" if node.fate == "pruned" else "muted"
        if node.parent >= 0:
            before = self.nodes[node.parent]
            start = (MARGIN + 20 + COLUMN * before.step + 98, top + before.y * ROW)
        else:
            start = (MARGIN, top + sum(n.y for n in self.nodes if n.step == 0) / max(1, self._first()) * ROW)
        thick = 0.6 + 4.0 * math.exp(max(node.log_prob, -20.0)) if math.isfinite(node.log_prob) else 0.6
        scene.shapes.append(Path((start, (x - 6, y)), role, width=thick))
        text = f"{node.piece}: score {node.score:.4f}, log p of the symbol {node.log_prob:.4f}, {node.fate}"
        data = (("v", repr(node.score)), ("t", text))
        scene.shapes.append(Rect(x - 4, y - 9, 102, 18, "page", radius=4, data=data, title=text))
        shown = shorten(visible(node.piece), 4.9)
        scene.shapes.append(
            Label(x, y + 4, shown, size=12, role="muted" if node.fate == "pruned" else "text", bold=node.best)
        )
        score = f"{node.score:.2f}" + ("  ✓" if node.fate == "finished" else "")
        scene.shapes.append(Label(x + 94, y + 4, score, size=10, role="muted", anchor="end"))

    def _first(self) -> int:
        return sum(node.step == 0 for node in self.nodes)

    def _place(self) -> int:
        """A row for every leaf, every parent amid its children; returns the number of rows."""
        children: dict[int, list[int]] = {}
        for i, node in enumerate(self.nodes):
            children.setdefault(node.parent, []).append(i)
        rows = 0
        stack = [(i, False) for i in reversed(children.get(-1, []))]
        while stack:
            i, done = stack.pop()
            below = children.get(i, [])
            if done:
                self.nodes[i].y = sum(self.nodes[c].y for c in below) / len(below)
            elif below:
                stack.append((i, True))
                stack += [(c, False) for c in reversed(below)]
            else:
                self.nodes[i].y = float(rows)
                rows += 1
        return max(rows, 1)

    def text(self, width: int, *, colour: bool) -> str:
        """Step by step what was kept, finished and dropped, then the outputs."""
        lines = [*wrap(visible(self.title), width), *wrap(visible(self.subtitle), width)]
        for step in sorted({node.step for node in self.nodes}):
            here = [node for node in self.nodes if node.step == step]
            lines.append(f"step {step + 1}")
            for node in here:
                mark = {"kept": " ", "finished": "✓", "pruned": "✗"}.get(node.fate, " ")
                before = self.nodes[node.parent].piece if node.parent >= 0 else "▸"
                star = "*" if node.best else " "
                lines.append(f" {star}{mark} {node.score:8.3f}  {visible(before)} → {visible(node.piece)}")
        lines += [
            "outputs, best first",
            *(f"  {score:8.3f}  {visible(text)}" for text, score in self.outputs),
        ]
        lines += [line for note in self.notes for line in wrap(visible(note), width)]
        return "\n".join(clip(line, width) for line in lines) + "\n"


def beam(trace: Trace, *, pruned: bool = True, steps: int = 12) -> Tree:
    """The tree of the tables ``beam`` and ``nbest``; without ``pruned`` only what was kept, ``steps`` at most."""
    if not 1 <= steps <= 200:
        raise AnaphoraError(f"steps must be from 1 to 200, not {steps}.")
    nodes: list[Node] = []
    kept: dict[tuple[int, int], int] = {}
    places: dict[int, int] = {}
    for place, record in enumerate(trace.tables["beam"]):
        if int(record["step"]) >= steps or (record["fate"] == "pruned" and not pruned):
            continue
        step = int(record["step"])
        parent = -1 if step == 0 else kept[step - 1, int(record["parent"])]
        if record["rank"] is not None and record["fate"] == "kept":
            kept[step, int(record["rank"])] = len(nodes)
        places[place] = len(nodes)
        nodes.append(
            Node(
                step,
                str(record["piece"]),
                _finite(record["score"]),
                _own(record),
                str(record["fate"]),
                parent,
            )
        )
    found = outputs_of(trace)
    outputs = [
        (" ".join(row["pieces"]) + (f" ({row['ways']} ways)" if row["ways"] > 1 else ""), float(row["score"]))
        for row in found[:MOST_OUTPUTS]
    ]
    _mark_best(nodes, trace, places)
    all_steps = 1 + max((int(r["step"]) for r in trace.tables["beam"]), default=0)
    notes = [f"the first {steps} of {all_steps} steps"] if all_steps > steps else []
    if len(found) > MOST_OUTPUTS:
        notes.append(f"the best {MOST_OUTPUTS} of {len(found)} outputs that were finished")
    return Tree(TITLE, facts_line(trace), nodes, outputs, notes)


def _finite(value: Any) -> float:
    return float(value) if value is not None else -math.inf


def _own(record: dict[str, Any]) -> float:
    """log p of the symbol alone, where the record has it."""
    return _finite(record.get("step_log_prob", record["log_prob"]))


def _mark_best(nodes: list[Node], trace: Trace, places: dict[int, int]) -> None:
    """Mark the way to each output that the search gave or, where none is among the nodes, to the last kept ones."""
    given = [list(map(str, row["pieces"])) for row in trace.tables.get("nbest", [])]
    paths = [path for row, path in finished_paths(trace) if row["pieces"] in given]
    shown = [places[place] for path in paths for place in path if place in places]
    if not shown and nodes:
        last = max(node.step for node in nodes)
        shown = [i for i, node in enumerate(nodes) if node.step == last and node.fate == "kept"]
    for i in shown:
        while i >= 0:
            nodes[i].best = True
            i = nodes[i].parent
