"""Operations on neighbouring columns of the same values, done as one.

The graph cuts gates apart: i, f and o are sigmoids of three slices of one sum. Compiled code loops over columns anyway,
but torch pays for every operation, so here neighbours are joined again, and each becomes columns of the result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from anaphora.engine.graph import Node
from anaphora.engine.ops import POINTWISE

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
