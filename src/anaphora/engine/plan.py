"""What to compute when: products merged and hoisted, and what the forward pass keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, TypeVar

from anaphora.engine.derive import Derivative, derive
from anaphora.engine.graph import REDUCTIONS, CannotTrace, Graph, Node, ancestors, until
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


# ----------------------------------------------------------------------
# When each value of a plan can be computed: once, for all steps at once, inside the loop, or after it.
#
# On a GPU every operation inside the loop is a kernel per step, and without a compiler it is a call per step: what
# need not be there is done for all steps at once, before the loop or after it.
ONCE, AHEAD, LOOP = range(3)
_LEAVES = {"const": ONCE, "vector": ONCE, "row": ONCE, "step": AHEAD, "state": LOOP, "gradient": LOOP}


@dataclass(frozen=True)
class Schedule:
    """One pass: the nodes that cross from one part of it to the next."""

    once: list[Node]  # read by the loop, the same at every step
    ahead: list[Node]  # read by the loop, different at every step, but known before it
    loop: list[Node]  # the states or their gradients, carried from step to step
    collected: list[Node]  # values wanted of every step afterwards
    after: list[Node] = field(default_factory=list)  # made of these for all steps at once


def forward_schedule(plan: Plan) -> Schedule:
    """Of the forward pass; ``collected`` is what the backward pass needs."""
    new = widen(until(plan.outputs, ()), (), {})
    outputs = [new[n.number] for n in plan.outputs]
    wanted = {n.number: new[n.number] for n in (*plan.keep, *(source for _, source in plan.operands))}
    roots = [*outputs, *wanted.values()]
    once, ahead = _crossing(roots, tiers(until(roots, ()), {}), {})
    return Schedule(once, ahead, outputs, list(wanted.values()))


def backward_schedule(plan: Plan) -> Schedule:
    """Of the backward pass; ``after``: the gradients of step inputs, vectors and products, in this order."""
    known = {n.number: AHEAD for n in (*plan.keep, *(source for _, source in plan.operands))}
    old = backward_roots(plan.backward)
    new = widen(until(old, known), known, plan.views)
    roots = [new[n.number] for n in old]
    states, after = roots[: len(plan.state_widths)], roots[len(plan.state_widths) :]
    when = tiers(until(roots, known), known)
    once, ahead = _crossing(states, when, known)
    looped = {n.number for n in until(states, known) if when[n.number] == LOOP}
    looped |= {n.number for n in until(roots, known) if n.op == "gradient"}
    collected = [n for n in until(after, {*known, *looped}) if n.number in looped]
    return Schedule(once, ahead, states, collected, after)


def tiers(nodes: Iterable[Node], known: Mapping[int, int]) -> dict[int, int]:
    """When each node can be computed, by number: ONCE, AHEAD or LOOP; ``known`` says it of some."""
    found = dict(known)
    for node in nodes:
        if node.number not in found:
            found[node.number] = max((found[a.number] for a in node.args), default=_LEAVES.get(node.op, ONCE))
    return found


def _crossing(
    roots: list[Node], when: Mapping[int, int], known: Mapping[int, int]
) -> tuple[list[Node], list[Node]]:
    """The nodes known before the loop that the loop, or the caller who needs the roots, reads."""
    read = {n.number: n for n in roots}
    for node in until(roots, known):
        if when[node.number] == LOOP:
            read |= {a.number: a for a in node.args}
    found = list(read.values())
    return [n for n in found if when[n.number] == ONCE], [n for n in found if when[n.number] == AHEAD]


# ----------------------------------------------------------------------
# Operations on neighbouring columns of the same values, done as one.
#
# The graph cuts gates apart: i, f and o are sigmoids of three slices of one sum. Compiled code loops over columns anyway,
# but torch pays for every operation, so here neighbours are joined again, and each becomes columns of the result.
_Run = list[tuple[int, Node]]  # (where the columns start, the operation on them), neighbours in order


def widen(
    order: Sequence[Node], given: Collection[int], views: Mapping[int, tuple[Node, int]]
) -> dict[int, Node]:
    """The same values under the same numbers by fewer operations, arguments first; new nodes get negative numbers.

    ``given``: values that are at hand; ``views``: values that are columns of these.
    """
    nodes, numbers = [_as_columns(node, views) for node in order], count(-1, -1)
    while True:
        joined = _join(nodes, given, numbers)
        grown = len(joined) > len(nodes)  # every joining adds a node
        nodes = joined
        if not grown:
            break
    built: dict[int, Node] = {}
    for node in nodes:
        args = tuple(built.get(a.number, a) for a in node.args)
        built[node.number] = node if node.number in given else replace(node, args=args)
    return built


def _as_columns(node: Node, views: Mapping[int, tuple[Node, int]]) -> Node:
    if node.number not in views:
        return node
    whole, start = views[node.number]
    return Node("slice", (whole,), node.width, start, number=node.number)


def _join(order: list[Node], given: Collection[int], numbers: Iterator[int]) -> list[Node]:
    places = _Places(order, given)
    groups: dict[tuple[object, ...], _Run] = {}
    for node in order:
        if node.op in POINTWISE and node.width > 1 and node.number not in given:
            wide = [places.of(a) for a in node.args if a.width > 1]
            if wide and all(a.op != "spread" for a in node.args):
                start = wide[0][1]
                key = (node.op, *(_relative(places, a, start) for a in node.args))
                groups.setdefault(key, []).append((start, node))
    joined: dict[int, list[Node]] = {}  # what stands in the place of a node
    position = {node.number: k for k, node in enumerate(order)}
    for group in groups.values():
        for run in _runs(group):
            whole = _whole(places, run, numbers)
            first = min((node for _, node in run), key=lambda node: position[node.number])
            for start, node in run:
                part = Node("slice", (whole[-1],), node.width, start - run[0][0], number=node.number)
                joined[node.number] = [*whole, part] if node is first else [part]
    return [n for node in order for n in joined.get(node.number, [_uncut(places, given, node)])]


class _Places:
    """Of which value, from which column on, each node is a part."""

    def __init__(self, order: list[Node], given: Collection[int]):
        self.known: dict[int, tuple[Node, int]] = {}
        for node in order:
            if node.op == "slice" and node.number not in given:
                whole, start = self.of(node.args[0])
                self.known[node.number] = (whole, start + node.index)

    def of(self, node: Node) -> tuple[Node, int]:
        return self.known.get(node.number, (node, 0))


def _relative(places: _Places, argument: Node, start: int) -> tuple[object, ...]:
    if argument.width == 1:
        return (argument.number,)
    whole, at = places.of(argument)
    return whole.number, at - start


def _runs(group: _Run) -> list[_Run]:
    """Two or more operations whose columns follow one another."""
    runs: list[_Run] = []
    for start, node in sorted(group, key=lambda item: item[0]):
        if runs and runs[-1][-1][0] + runs[-1][-1][1].width == start:
            runs[-1].append((start, node))
        else:
            runs.append([(start, node)])
    return [run for run in runs if len(run) > 1]


def _whole(places: _Places, run: _Run, numbers: Iterator[int]) -> list[Node]:
    """The operation on all columns of a run, after the slices it needs."""
    width = sum(node.width for _, node in run)
    made: list[Node] = []
    args: list[Node] = []
    for argument in run[0][1].args:
        if argument.width > 1:
            whole, start = places.of(argument)
            argument = whole
            if whole.width != width:
                argument = Node("slice", (whole,), width, start, number=next(numbers))
                made.append(argument)
        args.append(argument)
    return [*made, Node(run[0][1].op, tuple(args), width, number=next(numbers))]


def _uncut(places: _Places, given: Collection[int], node: Node) -> Node:
    """A concatenation of neighbouring columns is those columns."""
    if node.op != "cat" or node.number in given or any(part.op == "spread" for part in node.args):
        return node
    whole, start = places.of(node.args[0])
    at = start
    for part in node.args:
        if places.of(part) != (whole, at):
            return node
        at += part.width
    return Node("slice", (whole,), node.width, start, number=node.number)
