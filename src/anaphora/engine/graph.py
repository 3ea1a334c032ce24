"""The language one step of a recurrence is written in: values that are one row wide, and few operations.

A node stands for a value per row of the batch, ``width`` numbers wide; width 1 is broadcast. Leaves are the
step's inputs, the row's inputs, the states and vector parameters. Nodes are made through :class:`Graph`, which keeps
one node per expression (equal expressions are shared) and simplifies as it goes:

- a slice of a pointwise operation is the operation on slices, so that four gates cut from one product need
  no copies, and a concatenation only exists where a product or a store needs it as one array;
- what changes no value vanishes: x − 0, x · 1, x / 1, arithmetic on constants.

NaN and ±inf, in every backend, follow IEEE 754 and torch, so that a run that diverges shows it:

- ``max``, ``min`` and ``maximum`` are NaN if any operand is; ``relu`` of NaN is NaN, ``sign`` of NaN is 0;
- ``gt`` and ``ge`` with NaN are 0 (false); ``select`` returns the chosen operand as it is, whatever the other one is;
- 0 · x is NaN where x is NaN or infinite, so it is computed; x + 0 is computed too: it is +0 for x = −0;
- no operation may be reassociated or contracted across nodes in a way that makes a finite result of these, or the
  reverse.

Gradients are those of torch, and :mod:`~anaphora.engine.derive` writes them in these same operations:
a gradient that does not flow is selected away (0 even where it is NaN or infinite) exactly where torch masks it. Two
things are never read, unlike in a loop over padded rows: steps past a row's end, and columns no output depends on. A
step that does not read all its states is left to the reference: the state it ignores has a gradient at the last step
only, and a zero in place of none would make NaN of NaN. Only the ``scan`` backend takes a step that does not read its
output, and leaves that gradient out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from anaphora.engine.ops import POINTWISE

LEAVES = frozenset({"step", "row", "state", "vector", "const", "gradient"})
REDUCTIONS = frozenset({"sum", "maximum"})

Number: TypeAlias = "float | int"


class CannotTrace(Exception):  # noqa: N818 (says what happened)
    """The step does something that has no place in a graph; the text says what."""


@dataclass(frozen=True, eq=False)
class Node:
    """``op`` of ``args``; ``index`` says which leaf or matrix, or where a slice starts; ``value``: a constant's."""

    op: str
    args: tuple[Node, ...]
    width: int
    index: int = 0
    value: float = 0.0
    number: int = 0  # order of making: arguments come before what uses them

    def __repr__(self) -> str:
        inner = ", ".join(f"v{a.number}" for a in self.args)
        said = self.value if self.op == "const" else self.index
        return f"v{self.number}:{self.width} = {self.op}[{said}]({inner})"


class Graph:
    """Makes nodes; the only way to make them."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Node] = {}
        # The largest of a concatenation is found part by part; its gradient depends on all parts together.
        self.peaks: dict[int, list[Node]] = {}

    def node(
        self, op: str, args: Sequence[Node] = (), width: int = 1, index: int = 0, value: float = 0.0
    ) -> Node:
        key = (op, tuple(a.number for a in args), width, index, value, math.copysign(1.0, value))
        found = self._known.get(key)
        if found is None:
            found = Node(op, tuple(args), width, index, value, len(self._known))
            self._known[key] = found
        return found

    def const(self, value: Number) -> Node:
        return self.node("const", (), 1, 0, float(value))

    def product(self, value: Node, matrix: int, width: int) -> Node:
        """``value`` times matrix number ``matrix``."""
        return self.node("product", (value,), width, matrix)

    def reduce(self, op: str, value: Node) -> Node:
        """``sum`` or ``maximum`` of a row."""
        if value.op == "spread":
            inner = value.args[0]
            return self.pointwise("mul", self.const(value.width), inner) if op == "sum" else inner
        if value.op == "cat":
            total = self.reduce(op, value.args[0])
            for part in value.args[1:]:
                total = self.pointwise("add" if op == "sum" else "max", total, self.reduce(op, part))
            if op == "maximum":
                self.peaks[total.number] = list(value.args)
            return total
        return value if value.width == 1 else self.node(op, (value,), 1)

    # ------------------------------------------------------------------ structure
    def slice(self, value: Node, start: int, width: int) -> Node:
        """Columns ``start … start + width`` of a value."""
        if start == 0 and width == value.width:
            return value
        if value.op == "slice":
            return self.slice(value.args[0], value.index + start, width)
        if value.op in POINTWISE:
            cut = [a if a.width == 1 else self.slice(a, start, width) for a in value.args]
            return self.pointwise(value.op, *cut)
        if value.op == "cat":
            return self.cat(self._cut(value, start, width))
        if value.op == "const":
            return value
        if value.op == "spread":
            return self.spread(value.args[0], width)
        return self.node("slice", (value,), width, start)

    def _cut(self, value: Node, start: int, width: int) -> list[Node]:
        pieces, at = [], 0
        for part in value.args:
            low, high = max(start, at), min(start + width, at + part.width)
            if low < high:
                pieces.append(self.slice(part, low - at, high - low))
            at += part.width
        return pieces

    def cat(self, parts: Iterable[Node]) -> Node:
        flat: list[Node] = []
        for part in parts:
            flat.extend(part.args if part.op == "cat" else (part,))
        joined: list[Node] = []
        for part in flat:  # neighbours cut from one value grow together again
            if joined and self._continues(joined[-1], part):
                last = joined.pop()
                whole = part.args[0]
                start = last.index if last.op == "slice" else 0
                part = self.slice(whole, start, last.width + part.width)
            joined.append(part)
        if len(joined) == 1:
            return joined[0]
        return self.node("cat", joined, sum(p.width for p in joined))

    @staticmethod
    def _continues(before: Node, after: Node) -> bool:
        return (
            before.op == after.op == "slice"
            and before.args[0] is after.args[0]
            and before.index + before.width == after.index
        )

    def spread(self, value: Node, width: int) -> Node:
        """A value one wide, repeated."""
        if width == 1 or value.width == width:
            return value
        return self.node("spread", (value,), width)

    # ------------------------------------------------------------------ arithmetic
    def total(self, terms: Iterable[Node]) -> Node:
        """The sum of some values, from the first to the last; zero if there are none."""
        result: Node | None = None
        for term in terms:
            result = term if result is None else self.pointwise("add", result, term)
        return self.const(0) if result is None else result

    def pointwise(self, op: str, *args: Node) -> Node:
        width = max(a.width for a in args)
        if any(a.width not in (1, width) for a in args):
            raise ValueError(f"{op} of widths {[a.width for a in args]}")
        args = tuple(a.args[0] if a.op == "spread" and len(args) > 1 else a for a in args)
        simple = self._simplified(op, args)
        if simple is not None:
            return simple if simple.width == width else self.spread(simple, width)
        if any(a.op == "cat" for a in args):
            return self._split(op, args)
        made = max(a.width for a in args)
        node = self.node(op, args, made)
        return node if made == width else self.spread(node, width)

    def _split(self, op: str, args: tuple[Node, ...]) -> Node:
        """A pointwise operation on concatenations, part by part."""
        edges = {0}
        for a in args:
            if a.op == "cat":
                at = 0
                for part in a.args:
                    at += part.width
                    edges.add(at)
        parts = []
        for low, high in pairwise(sorted(edges)):
            cut = (a if a.width == 1 else self.slice(a, low, high - low) for a in args)
            parts.append(self.spread(self.pointwise(op, *cut), high - low))
        return self.cat(parts)

    def _simplified(self, op: str, args: tuple[Node, ...]) -> Node | None:
        if all(a.op == "const" for a in args):
            return self._computed(op, [a.value for a in args])
        first = args[0]
        if op in ("add", "sub", "mul", "div"):
            a, b = args
            if (op == "add" and _is(a, -0.0)) or (op == "mul" and _is(a, 1)):
                return b
            if (op == "add" and _is(b, -0.0)) or (op == "sub" and _is(b, 0)):
                return a
            if op in ("mul", "div") and _is(b, 1):
                return a
            if op == "mul" and _is(a, -1):
                return self.pointwise("neg", b)
            if op == "mul" and _is(b, -1):
                return self.pointwise("neg", a)
            if op == "add" and b.op == "neg":
                return self.pointwise("sub", a, b.args[0])
            if op == "div" and b.op == "const" and _has_exact_reciprocal(b.value):
                return self.pointwise("mul", a, self.const(1 / b.value))
        if op == "neg" and first.op == "neg":
            return first.args[0]
        return None

    def _computed(self, op: str, values: list[float]) -> Node | None:
        a, b = values[0], values[-1]
        if op == "add":
            return self.const(a + b)
        if op == "sub":
            return self.const(a - b)
        if op == "mul":
            return self.const(a * b)
        if op == "neg":
            return self.const(-a)
        if op == "div" and b != 0:
            return self.const(a / b)
        return None


def _is(node: Node, value: float) -> bool:
    """Whether a node is this constant; the two zeros differ."""
    same_sign = math.copysign(1, node.value) == math.copysign(1, value)
    return node.op == "const" and node.value == value and same_sign


def _has_exact_reciprocal(value: float) -> bool:
    """Powers of two that neither overflow nor lose bits in float32."""
    return abs(math.frexp(value)[0]) == 0.5 and 2.0**-120 < abs(value) < 2.0**120


def until(roots: Iterable[Node], stop: Collection[int]) -> list[Node]:
    """The nodes the roots are made of down to those in ``stop``, whose arguments are left out; arguments first."""
    found: dict[int, Node] = {}
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if node.number in found:
            continue
        if ready or node.number in stop:
            found[node.number] = node
        else:
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args))
    return list(found.values())


def ancestors(roots: Iterable[Node]) -> list[Node]:
    """All nodes the roots are made of, themselves included, arguments first."""
    seen: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.number not in seen:
            seen[node.number] = node
            stack.extend(node.args)
    return [seen[k] for k in sorted(seen)]


def parts_of(node: Node) -> list[tuple[Node, int]]:
    """A value's parts with the columns they start at; one part unless it is a concatenation."""
    if node.op != "cat":
        return [(node, 0)]
    parts, at = [], 0
    for part in node.args:
        parts.append((part, at))
        at += part.width
    return parts
