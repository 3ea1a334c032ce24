"""What to compute when: products merged and hoisted, and what the forward pass keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from anaphora.engine.derive import Derivative, derive
from anaphora.engine.graph import REDUCTIONS, CannotTrace, Graph, Node, ancestors
from anaphora.engine.ops import COSTLY, POINTWISE
from anaphora.engine.rings import MatrixName, Ring, find_rings
from anaphora.engine.trace import Trace

GIVEN = frozenset({"step", "row", "vector", "const"})  # at hand in both passes without being kept


Made = TypeVar("Made")


class Cache:
    """What backends and the dispatcher have made for a plan, by key; the first part of a key names its owner.

    Everything goes when there is too much of it: shapes that never come again must not stay for ever.
    """

    LIMIT = 4096

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What is kept under ``key``, made when it is not there; what ``make`` raises is not kept."""
        found: Made | None = self._made.get(key)
        if found is None:
            found = make()
            if len(self._made) >= self.LIMIT:
                self._made.clear()
            self._made[key] = found
        return found

    def __contains__(self, key: Hashable) -> bool:
        return key in self._made


@dataclass
class Matrix:
    """Matrices of the trace that multiply the same value, stacked: one product does them all."""

    parts: list[int]
    out: int
    width: int  # of the value it multiplies


@dataclass
class Plan:
    """One step's forward and backward programs."""

    graph: Graph
    matrices: list[Matrix]
    outputs: list[Node]
    state_widths: list[int]
    step_widths: list[int]
    row_widths: list[int]
    vector_widths: list[int]
    backward: Derivative
    keep: list[Node] = field(default_factory=list)  # values the forward pass keeps for the backward pass
    views: dict[int, tuple[Node, int]] = field(default_factory=dict)  # values that are parts of kept ones
    operands: list[tuple[int, Node]] = field(
        default_factory=list
    )  # (matrix, what it multiplies), to be kept too
    rings: tuple[Ring, ...] = ()  # which states need a loop over time, those read first
    unread: bool = False  # no step reads the output of the step before
    cache: Cache = field(default_factory=Cache, repr=False, compare=False)

    @property
    def loops(self) -> Ring | None:
        """A ring that needs a loop over time; None where columns never mix from step to step."""
        return next((ring for ring in self.rings if ring.kind == "loop"), None)

    @cached_property
    def products(self) -> list[Node]:
        """The products of the forward pass, in order."""
        return [n for n in ancestors(self.outputs) if n.op == "product"]


def make_plan(
    trace: Trace,
    step_widths: list[int],
    row_widths: list[int],
    state_widths: list[int],
    wanted_steps: set[int],
) -> Plan:
    """Merge the trace's products, derive the backward pass and decide what is kept in between; raises CannotTrace."""
    outputs, matrices = _merge_products(trace)
    rings = find_rings(outputs, _matrix_names(trace, matrices))
    read = {n.index for n in ancestors(outputs) if n.op == "state"}
    for i in range(len(state_widths)):
        if i not in read and (i or any(ring.kind == "loop" for ring in rings)):
            # Its gradient exists at the last step only. Here it would be 0 elsewhere, and 0 · NaN is NaN.
            raise CannotTrace(f"state {i} is never read by the next step")
    graph = trace.graph
    seeds = [graph.node("gradient", (), w, i) for i, w in enumerate(state_widths)]
    widths = {m: matrix.width for m, matrix in enumerate(matrices)}
    backward = derive(graph, outputs, seeds, state_widths, wanted_steps, widths)
    plan = Plan(
        graph,
        matrices,
        outputs,
        state_widths,
        step_widths,
        row_widths,
        [w for _, w in trace.vectors],
        backward,
        rings=rings,
        unread=0 not in read,
    )
    for product in plan.products:
        if product.args[0].op != "step":
            plan.operands.append((product.index, product.args[0]))
    _choose_kept(plan)
    return plan


def _matrix_names(trace: Trace, matrices: list[Matrix]) -> MatrixName:
    """The name of the parameter that makes a column of a merged product."""

    def name_of(matrix: int, column: int) -> str:
        for part in matrices[matrix].parts:
            known, out, _ = trace.matrices[part]
            if column < out:
                return trace.name_of(known)
            column -= out
        raise IndexError(column)

    return name_of


def backward_roots(backward: Derivative) -> list[Node]:
    return [
        *backward.states,
        *backward.steps.values(),
        *backward.vectors.values(),
        *(gradient for _, gradient in backward.products),
    ]


def _merge_products(trace: Trace) -> tuple[list[Node], list[Matrix]]:
    """Rewrite products of the same value as slices of one product."""
    graph = trace.graph
    order = ancestors(trace.outputs)
    groups: dict[int, list[int]] = {}
    for node in order:
        if node.op == "product":
            group = groups.setdefault(node.args[0].number, [])
            if node.index not in group:
                group.append(node.index)
    matrices: list[Matrix] = []
    number: dict[int, int] = {}
    for source, parts in groups.items():
        number[source] = len(matrices)
        out = sum(trace.matrices[m][1] for m in parts)
        matrices.append(Matrix(parts, out, trace.matrices[parts[0]][2]))
    new: dict[int, Node] = {}
    for node in order:
        args = [new[a.number] for a in node.args]
        if node.op == "product":
            m = number[node.args[0].number]
            parts = matrices[m].parts
            before = sum(trace.matrices[p][1] for p in parts[: parts.index(node.index)])
            whole = graph.product(args[0], m, matrices[m].out)
            new[node.number] = graph.slice(whole, before, node.width)
        else:
            new[node.number] = made = rebuild(graph, node, args)
            if node.number in graph.peaks:
                graph.peaks[made.number] = [new[p.number] for p in graph.peaks[node.number]]
    return [new[o.number] for o in trace.outputs], matrices


def rebuild(graph: Graph, node: Node, args: list[Node]) -> Node:
    """The same operation on other arguments."""
    if not args:
        return node
    if node.op in POINTWISE:
        return graph.pointwise(node.op, *args)
    if node.op in REDUCTIONS:
        return graph.reduce(node.op, args[0])
    if node.op == "slice":
        return graph.slice(args[0], node.index, node.width)
    if node.op == "cat":
        return graph.cat(args)
    if node.op == "spread":
        return graph.spread(args[0], node.width)
    return graph.node(node.op, args, node.width, node.index, node.value)


def _choose_kept(plan: Plan) -> None:
    """Decide which forward values to keep: what is dear to compute again, and no more than the backward pass needs.

    A value the backward pass refers to is computed again from kept ones when only cheap operations lie between;
    otherwise it is kept itself, since a product behind it would take more room.
    """
    forward = {n.number for n in ancestors(plan.outputs)}
    referred: dict[int, Node] = {}
    roots = backward_roots(plan.backward)
    for node in ancestors(roots):
        if node.number in forward:
            if any(node is r for r in roots):
                referred[node.number] = node
        else:
            referred.update({a.number: a for a in node.args if a.number in forward})
    kept: dict[int, Node] = {}
    at_hand = {source.number for _, source in plan.operands}

    def missing(node: Node) -> list[Node]:
        if node.op in GIVEN or node.number in kept or node.number in at_hand or viewed(node):
            return []
        if _dear(node):
            return [node]
        return [m for a in node.args for m in missing(a)]

    def viewed(node: Node) -> bool:
        """Whether the node is a part of a kept one (a slice of a pointwise value is a node of its own)."""
        if node.op not in POINTWISE:
            return False
        for whole in kept.values():
            if whole.op == node.op and whole.width > node.width:
                for start in range(0, whole.width - node.width + 1, node.width):
                    if plan.graph.slice(whole, start, node.width) is node:
                        plan.views[node.number] = (whole, start)
                        return True
        return node.number in plan.views

    for number in sorted(referred, key=lambda k: (-referred[k].width, k)):
        node = referred[number]
        lacking = missing(node)
        if any(_made_of_product(m) for m in lacking):
            kept[number] = node
        else:
            kept.update({m.number: m for m in lacking})
    plan.keep = sorted(kept.values(), key=lambda n: (-n.width, n.number))


def _dear(node: Node) -> bool:
    if node.op == "slice":
        return node.args[0].op in ("product", "state")
    return node.op in COSTLY or node.op in REDUCTIONS or node.op in ("product", "state", "relu")


def _made_of_product(node: Node) -> bool:
    return node.op == "product" or (node.op == "slice" and node.args[0].op == "product")


def used(nodes: Iterable[Node], op: str) -> set[int]:
    """Which leaves of a kind some nodes are made of."""
    return {n.index for n in ancestors(nodes) if n.op == op}
