"""A step without loops, cut into units: what one kernel computes for all steps, column by column.

Where no ring of a plan is a loop, a column of a state never waits for another column. What mixes columns (products,
sums of rows, joins) then lies between the rings and is done for all steps at once; what lies between these operations is a
*unit*: pointwise operations on columns of one width, with the states that are carried from step to step. Units are ordered
by *stages*; a unit reads the inputs, what mixing operations made, and what units of earlier stages stored.

A unit has a graph of its own. Its ``step`` leaves are columns of sequences; ``outputs`` are its new states, ``exports``
the values it stores for every step: the layer's output, and what later stages read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from anaphora.engine.derive import Derivative, derive
from anaphora.engine.graph import REDUCTIONS, Graph, Node, ancestors
from anaphora.engine.ops import POINTWISE
from anaphora.engine.plan import Plan
from anaphora.engine.rings import dependent, not_affine

Value = TypeVar("Value")


class CannotWalk(Exception):  # noqa: N818 (says what happened)
    """The step cannot be cut into units; the text says why, as a clause that follows "because"."""


@dataclass(frozen=True)
class Columns:
    """As many columns of a value of the plan as the unit is wide, from ``start``; or one, repeated (``narrow``)."""

    node: Node
    start: int
    narrow: bool = False


@dataclass
class Unit:
    """What one kernel computes. Local leaves: ``step`` k is ``sequences[k]``, and so on."""

    stage: int
    width: int
    graph: Graph = field(default_factory=Graph)
    states: list[int] = field(default_factory=list)  # the plan's numbers
    outputs: list[Node] = field(default_factory=list)  # the new states
    exports: list[Node] = field(default_factory=list)
    stored: list[Node] = field(default_factory=list)  # the plan's nodes that are exported
    sequences: list[Columns] = field(default_factory=list)
    vectors: list[Columns] = field(default_factory=list)
    rows: list[Columns] = field(default_factory=list)

    @cached_property
    def carried(self) -> list[int]:
        """Which of the unit's states its next step reads."""
        read = {n.index for n in ancestors([*self.outputs, *self.exports]) if n.op == "state"}
        return sorted(read)

    @cached_property
    def backward(self) -> Derivative:
        """Gradients of states, sequences and vectors; ``gradient`` leaves: of new states, then of exports."""
        return self._derive([*self.outputs, *self.exports], 0)

    @cached_property
    def silent(self) -> Derivative | None:
        """Of a step whose exports and unread states have no gradient; None where that makes no difference."""
        if len(self.carried) == len(self.states):
            return None
        return self._derive(self.outputs, 0, set(self.carried))

    def _derive(self, values: Sequence[Node], first: int, only: set[int] | None = None) -> Derivative:
        wanted = [k for k in range(len(values)) if only is None or k in only]
        seeds = [self.graph.node("gradient", (), self.width, first + k) for k in wanted]
        widths = [self.width] * len(self.states)
        steps = set(range(len(self.sequences)))
        return derive(self.graph, [values[k] for k in wanted], seeds, widths, steps, {})

    @cached_property
    def remembered(self) -> list[int]:
        """The states whose old values the backward pass reads."""
        d = self.backward
        roots = [*d.states, *d.steps.values(), *d.vectors.values()]
        return sorted({n.index for n in ancestors(roots) if n.op == "state"})

    def exported_as(self, state: int) -> int | None:
        """Which export is the new value of a state, if one is."""
        return next((e for e, node in enumerate(self.exports) if node is self.outputs[state]), None)

    def recalled(self, own: Mapping[int, Value], exports: Sequence[Value]) -> list[Value]:
        """The new values of ``remembered``: those that are exports anyway, and of the others their ``own``."""
        places = ((i, self.exported_as(i)) for i in self.remembered)
        return [own[i] if e is None else exports[e] for i, e in places]

    @cached_property
    def affine(self) -> bool:
        """Whether the carried states are affine in themselves, so that steps can be done in parallel."""
        if not self.carried:
            return True
        leaves = {("state", i) for i in self.carried}
        return not_affine([self.outputs[i] for i in self.carried], leaves) is None


def cut_units(plan: Plan) -> list[Unit]:
    """The units of a plan in the order they run in; raises CannotWalk."""
    if plan.loops is not None:
        raise CannotWalk("a state's columns mix at every step")
    return plan.cache.get(("units",), lambda: _Cutter(plan).units())


class _Cutter:
    def __init__(self, plan: Plan):
        self.plan = plan
        self.stage: dict[int, int] = {}  # of each state
        self.made_of_states = dependent(plan.outputs, {("state", i) for i in range(len(plan.outputs))})
        for ring in plan.rings:
            for i in ring.states:
                self.stage[i] = 0
            level = max(self._level(plan.outputs[i], {}) for i in ring.states)
            for i in ring.states:
                self.stage[i] = level
        self.levels: dict[int, int] = {}

    def _level(self, node: Node, known: dict[int, int]) -> int:
        """The stage in which a value is known: one more wherever a mixing operation reads what a unit computes."""
        if node.number not in known:
            if node.op == "state":
                known[node.number] = self.stage[node.index]
            else:
                pointwise = node.op in POINTWISE
                known[node.number] = max(
                    (
                        self._level(a, known)
                        + int(_computed(a) and (not pointwise or (a.width == 1 < node.width)))
                        for a in node.args
                    ),
                    default=0,
                )
        return known[node.number]

    def level(self, node: Node) -> int:
        return self._level(node, self.levels)

    def units(self) -> list[Unit]:
        plan = self.plan
        self.wanted: dict[tuple[int, int], dict[int, Node]] = {}  # what each unit must store
        self._want(plan.outputs[0], self.stage[0])
        found: dict[tuple[int, int], Unit] = {}
        top = max(self.stage.values())
        for stage in range(top, -1, -1):
            keys = {(stage, plan.state_widths[i]) for i, s in self.stage.items() if s == stage}
            keys |= {key for key in self.wanted if key[0] == stage}
            for key in sorted(keys, reverse=True):
                found[key] = self._unit(*key)
        units = [found[key] for key in sorted(found)]
        for unit in units:
            _check_overlap(unit)
        return units

    def _want(self, node: Node, stage: int) -> None:
        self.wanted.setdefault((stage, node.width), {})[node.number] = node

    def _unit(self, stage: int, width: int) -> Unit:
        unit = Unit(stage, width)
        plan = self.plan
        unit.states = [
            i for i, s in sorted(self.stage.items()) if s == stage and plan.state_widths[i] == width
        ]
        build = _Builder(self, unit)
        unit.outputs = [build.value(plan.outputs[i]) for i in unit.states]
        for node in self.wanted.get((stage, width), {}).values():
            unit.exports.append(build.value(node))
            unit.stored.append(node)
        return unit

    def need(self, node: Node, stage: int) -> None:
        """A unit of ``stage`` reads a value of every step: units before it must store what it is made of."""
        if node.op == "state" or (node.op in POINTWISE and node.number in self.made_of_states):
            at = self.stage[node.index] if node.op == "state" else self.level(node)
            if at >= stage:
                raise CannotWalk("two parts of the step wait for each other")
            self._want(node, at)
        elif node.op in POINTWISE:
            self._want(node, self.level(node))
        else:
            for a in node.args:
                self.need(a, stage)


class _Builder:
    """Rewrites values of the plan as values of a unit."""

    def __init__(self, cutter: _Cutter, unit: Unit):
        self.cutter, self.unit, self.graph = cutter, unit, unit.graph
        self.known: dict[tuple[int, ...], Node] = {}

    def value(self, node: Node) -> Node:
        return self.parts([node])

    def parts(self, nodes: Sequence[Node]) -> Node:
        """The value whose columns are those of some nodes, one after the other."""
        if len(nodes) > 1 or nodes[0].op == "cat":
            nodes = [part for node in nodes for part in (node.args if node.op == "cat" else (node,))]
        key = tuple(n.number for n in nodes)
        if key not in self.known:
            self.known[key] = self._made(nodes)
        return self.known[key]

    def _made(self, nodes: Sequence[Node]) -> Node:
        cutter, unit, first = self.cutter, self.unit, nodes[0]
        if all(n is first for n in nodes) and first.op == "const":
            return self.graph.const(first.value)
        if len(nodes) > 1:
            whole = cutter.plan.graph.cat(nodes)
            if whole.op != "cat":
                return self.parts([whole])
            if not any(n.number in cutter.made_of_states for n in nodes):
                return self._leaf(whole, 0)
            if len({(n.op, len(n.args)) for n in nodes}) == 1 and first.op in POINTWISE:
                return self._pointwise(first.op, nodes)
            raise CannotWalk("columns of a state follow different equations")
        if first.op == "state" and cutter.stage[first.index] == unit.stage:
            return self.graph.node("state", (), unit.width, unit.states.index(first.index))
        if first.op == "spread":
            return self._narrow(first.args[0])
        if first.op in POINTWISE and first.width == unit.width and self._inline(first):
            return self._pointwise(first.op, nodes)
        if first.op == "slice":
            return self._leaf(first.args[0], first.index)
        return self._leaf(first, 0)

    def _inline(self, node: Node) -> bool:
        """Whether a pointwise operation is computed in this unit."""
        return node.number not in self.cutter.made_of_states or self.cutter.level(node) >= self.unit.stage

    def _pointwise(self, op: str, nodes: Sequence[Node]) -> Node:
        args = []
        for k in range(len(nodes[0].args)):
            given = [n.args[k] for n in nodes]
            narrow = [g.width == 1 < n.width for g, n in zip(given, nodes, strict=True)]
            if all(narrow) or (given[0].op == "const" and all(g is given[0] for g in given)):
                if any(g is not given[0] for g in given):
                    raise CannotWalk("columns of a state follow different equations")
                args.append(self._narrow(given[0]))
            elif any(narrow):
                raise CannotWalk("columns of a state follow different equations")
            else:
                args.append(self.parts(given))
        return self.graph.pointwise(op, *args)

    def _narrow(self, node: Node) -> Node:
        if node.op == "const":
            return self.graph.const(node.value)
        if node.op == "slice":
            return self._leaf(node.args[0], node.index, narrow=True)
        return self._leaf(node, 0, narrow=True)

    def _leaf(self, node: Node, start: int, narrow: bool = False) -> Node:
        """Columns of something that is at hand when the unit runs."""
        unit = self.unit
        if node.op == "const":
            return self.graph.const(node.value)
        kinds = {"vector": unit.vectors, "row": unit.rows}
        held = kinds.get(node.op, unit.sequences)
        columns = Columns(node, start, narrow)
        if columns not in held:
            held.append(columns)
            if held is unit.sequences and node.op != "step":
                self.cutter.need(node, unit.stage)
        kind = node.op if node.op in kinds else "step"
        return self.graph.node(kind, (), unit.width, held.index(columns))


def _check_overlap(unit: Unit) -> None:
    """Gradients of columns are stored, not added up, so no column may be read as two."""
    taken = [(c.node.number, c.start) for c in unit.sequences if not c.narrow]
    for number, start in taken:
        if any(n == number and start < other < start + unit.width for n, other in taken):
            raise CannotWalk("the step reads overlapping columns")


def _computed(node: Node) -> bool:
    """Whether a unit computes this value."""
    return node.op == "state" or node.op in POINTWISE


def reduces(plan: Plan) -> bool:
    """Whether a step sums up rows or takes their maximum."""
    return any(n.op in REDUCTIONS for n in ancestors(plan.outputs))
