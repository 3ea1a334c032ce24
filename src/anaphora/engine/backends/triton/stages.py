"""A pass of a plan cut into stages: what one kernel can compute of a step before it has to wait for the others.

A kernel computes some columns of some rows. A product needs whole rows of what it multiplies, so where that is itself
computed within the step a new stage begins. All values are as wide as the state, or a multiple of it (four gates are
four *chunks*), or one number wide; whatever is not is left to another back end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from anaphora.engine.graph import REDUCTIONS, Node, until
from anaphora.engine.ops import POINTWISE
from anaphora.engine.plan import Plan
from anaphora.engine.schedule import LOOP, backward_schedule, forward_schedule, tiers


class CannotGenerate(Exception):  # noqa: N818 (says what happened)
    """The step has a shape these kernels do not know; the text says which."""


class Item(NamedTuple):
    """Columns ``chunk·H … (chunk+1)·H`` of a value; the whole of one that is one number wide."""

    node: Node
    chunk: int

    @property
    def key(self) -> tuple[int, int]:
        return self.node.number, self.chunk


@dataclass
class Pass:
    """One pass: its roots (new states, or gradients of the old ones) and what it stores of every step."""

    unit: int  # the width of the states, H
    backward: bool
    roots: list[Node]
    stored: list[Node]  # wanted of every step, or multiplied by a later stage
    ahead: list[Node]  # known for all steps before the loop; torch computes them
    kept: frozenset[int]  # values of the forward pass, by number
    level: dict[int, int] = field(default_factory=dict)  # tier of each node
    stages: dict[int, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The number of the last stage; the first is 0."""
        return max(self.stages.values(), default=0)

    def stage(self, node: Node) -> int:
        return self.stages.get(node.number, 0)

    def is_array(self, node: Node) -> bool:
        """Whether the value lies in memory before the loop begins."""
        if node.number in self.kept or node.op in ("step", "row", "vector"):
            return True
        if node.op == "state":
            return not self.backward
        return self.level[node.number] < LOOP and (node.op == "product" or node.op in REDUCTIONS)

    def resolve(self, node: Node, chunk: int) -> Item:
        """The value behind slices, concatenations and repetitions."""
        while node.number not in self.kept:
            if node.op == "slice":
                self._whole(node.index)
                node, chunk = node.args[0], chunk + node.index // self.unit
            elif node.op == "spread":
                node = node.args[0]
            elif node.op == "cat":
                at = 0
                for part in node.args:
                    count = self.chunks(part)
                    if at <= chunk < at + count:
                        node, chunk = part, chunk - at
                        break
                    at += count
            else:
                break
        return Item(node, 0 if node.width == 1 and self.unit > 1 else chunk)

    def chunks(self, node: Node) -> int:
        if node.width == 1:
            return 1
        self._whole(node.width)
        return node.width // self.unit

    def _whole(self, width: int) -> None:
        if width % self.unit:
            raise CannotGenerate(f"a value {width} wide, which is no multiple of the state's {self.unit}")


def forward_stages(plan: Plan) -> Pass:
    """The forward pass; raises :class:`CannotGenerate`."""
    schedule = forward_schedule(plan)
    return _make(plan, schedule.loop, [n for n in schedule.collected if n.op != "state"], frozenset(), False)


def backward_stages(plan: Plan) -> Pass:
    """The backward pass; raises :class:`CannotGenerate`."""
    schedule = backward_schedule(plan)
    known = frozenset(n.number for n in (*plan.keep, *(source for _, source in plan.operands)))
    return _make(plan, schedule.loop, schedule.collected, known, True)


def _make(plan: Plan, roots: list[Node], wanted: list[Node], kept: frozenset[int], backward: bool) -> Pass:
    widths = set(plan.state_widths)
    if len(widths) != 1 or widths == {1}:
        raise CannotGenerate("states of different widths, or one number wide")
    everything = until([*roots, *wanted], kept)
    level = tiers(everything, dict.fromkeys(kept, LOOP - 1))
    stored = [n for n in wanted if level[n.number] == LOOP]
    made = Pass(widths.pop(), backward, roots, stored, [], kept, level)
    arrays = {n.number for n in everything if made.is_array(n)}
    read: dict[int, Node] = {}
    for node in until([*roots, *stored], {*kept, *arrays}):
        made.chunks(node)
        if node.number in arrays or node.op in ("const", "gradient"):
            read[node.number] = node
            continue
        _place(made, node)
    ahead = [n for n in read.values() if n.op == "product" or n.op in REDUCTIONS]
    made.ahead = [n for n in ahead if n.number not in kept]
    made.ahead += [n for n in wanted if level[n.number] < LOOP and all(n is not a for a in ahead)]
    return made


def _place(made: Pass, node: Node) -> None:
    """Say in which stage a value of the loop is computed."""
    if node.op not in POINTWISE | REDUCTIONS | {"product", "slice", "cat", "spread"}:
        raise CannotGenerate(f"the operation {node.op}")
    stage = max((made.stage(a) for a in node.args), default=0)
    operand = node.args[0]
    if node.op == "product" and (made.backward or operand.op != "state"):
        stage += 1
        if all(operand is not n for n in made.stored):
            made.stored.append(operand)
    made.stages[node.number] = stage
