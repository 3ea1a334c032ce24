"""Which states of a step need a loop over time, and which can be computed faster: as a map, a scan or a walk.

States that read each other, directly or through others, form a *ring*. Rings are taken in order, those read first, so a
ring may count the states of earlier rings among its inputs: by then they are known for every step. A ring is

- a ``map`` if it does not read itself: all steps are computed at once (the h = o ∘ tanh(c) of a QRNN);
- a ``scan`` if its update is affine and column by column, s' = A s + b with A and b made of inputs: one pass over
  memory, and steps can be done in parallel; k states that read each other make A a k × k block for each column (k = 2 is
  a complex number);
- a ``walk`` if its update is column by column but not affine (IndRNN): a pass in order, one column never waiting for
  another;
- a ``loop`` otherwise: columns mix at every step (an LSTM's U h), so steps wait for a product.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from anaphora.engine.graph import Node, ancestors, parts_of
from anaphora.engine.ops import BENDS, POINTWISE

Kind = Literal["map", "scan", "walk", "loop"]
MatrixName: TypeAlias = "Callable[[int, int], str]"  # (matrix, column of its product) -> the parameter's name


@dataclass(frozen=True)
class Ring:
    """States that read each other. ``reason``: why it is a walk or a loop, with ``{i}`` for the name of state i;
    ``form``: of a matrix-valued state that is a scan, what its update is."""

    states: tuple[int, ...]
    kind: Kind
    reason: str = ""
    form: str = ""

    def describe(self, names: Sequence[str]) -> str:
        """In words: ``c: scan``, ``h: loop (not a scan: h goes through the matrix gates.weights.1)``."""
        who = ", ".join(names[i] for i in self.states)
        if self.kind == "scan":
            k = len(self.states)
            return f"{who}: scan ({self.form or ('diagonal' if k == 1 else f'{k}×{k} blocks')})"
        said = f" (not a scan: {self.reason.format(*names)})" if self.reason else ""
        return f"{who}: {self.kind}{said}"


def find_rings(outputs: Sequence[Node], name_of: MatrixName) -> tuple[Ring, ...]:
    """The rings of a step whose new states are ``outputs``, those that are read first."""
    groups, reach = ring_groups([{n.index for n in ancestors([o]) if n.op == "state"} for o in outputs])
    return tuple(_ring(group, outputs, reach, name_of) for group in groups)


def ring_groups(reads: Sequence[Collection[int]]) -> tuple[list[tuple[int, ...]], list[set[int]]]:
    """States that read each other, those read first; and what each state reads, directly or through others.

    ``reads``: what each state reads directly.
    """
    reach, states = _closure(reads), range(len(reads))
    groups = {tuple(j for j in states if j == i or (j in reach[i] and i in reach[j])) for i in states}
    return sorted(groups, key=lambda g: (len(reach[g[0]] | set(g)), g)), reach


def _closure(reads: Sequence[Collection[int]]) -> list[set[int]]:
    """For each state, all that it reads directly or through others."""
    reach = [set(r) for r in reads]
    for k in range(len(reach)):
        for r in reach:
            if k in r:
                r |= reach[k]
    return reach


def _ring(
    group: tuple[int, ...], outputs: Sequence[Node], reach: list[set[int]], name_of: MatrixName
) -> Ring:
    if group[0] not in reach[group[0]]:
        return Ring(group, "map")
    updates = [outputs[i] for i in group]
    reason = _mixes(updates, set(group), name_of)
    if reason is not None:
        return Ring(group, "loop", reason)
    reason = not_affine(updates, {("state", i) for i in group})
    return Ring(group, "scan") if reason is None else Ring(group, "walk", reason)


def dependent(roots: Sequence[Node], leaves: Collection[tuple[str, int]]) -> set[int]:
    """The numbers of the nodes under ``roots`` that are made of some of the leaves, given as (kind, index)."""
    found: set[int] = set()
    for node in ancestors(roots):
        if (node.op, node.index) in leaves if not node.args else any(a.number in found for a in node.args):
            found.add(node.number)
    return found


def _mixes(updates: Sequence[Node], group: set[int], name_of: MatrixName) -> str | None:
    """How a column comes to depend on other columns of the ring's states; None where it does not."""
    own = dependent(updates, {("state", i) for i in group})
    widths = {u.width for u in updates}
    if len(widths) > 1:
        return "its states have different widths"
    nodes = [n for n in ancestors(updates) if n.number in own]
    for node in nodes:
        if node.op == "product":
            return _through_matrix(node, nodes, name_of)
        if node.op in ("sum", "maximum"):
            return f"the {node.op} of a row reads {_states(node, group)}"
    for update in updates:
        for part, start in parts_of(update):
            for node in ancestors([part]):
                if node.number in own and not _in_place(node, start, part.width):
                    if node.op == "state" and node.width != part.width:
                        continue  # the slices say what of it is read
                    return f"columns of {_states(node, group)} are cut out, joined or moved"
    return None


def _in_place(node: Node, start: int, width: int) -> bool:
    """Whether column j of a node stands for column ``start`` + j of a state."""
    if node.op == "slice":
        return node.args[0].op == "state" and node.index == start and node.width == width
    return (node.op in POINTWISE or (node.op == "state" and start == 0)) and node.width == width


def _through_matrix(product: Node, nodes: Sequence[Node], name_of: MatrixName) -> str:
    """Which state a matrix multiplies, and what the product goes into next."""
    states = " and ".join(
        f"{{{i}}}" for i in sorted({n.index for n in ancestors([product]) if n.op == "state"})
    )
    behind = {product.number}
    part = 0
    for node in nodes:
        if any(a.number in behind for a in node.args):
            behind.add(node.number)
            if node.op == "slice" and node.args[0] is product:
                part = node.index
            if node.op in BENDS:
                return f"{node.op} reads {states} through the matrix {name_of(product.index, part)}"
    return f"{states} goes through the matrix {name_of(product.index, part)}"


def _states(node: Node, group: set[int]) -> str:
    found = sorted({n.index for n in ancestors([node]) if n.op == "state" and n.index in group})
    return " and ".join(f"{{{i}}}" for i in found)


def not_affine(updates: Sequence[Node], leaves: Collection[tuple[str, int]]) -> str | None:
    """Why some values are not affine in the given leaves, (kind, index) each; None where they are."""
    own = dependent(updates, leaves)
    for node in ancestors(updates):
        if node.number not in own or not node.args:
            continue
        here = [a.number in own for a in node.args]
        if node.op in ("add", "sub", "neg", "slice", "cat"):
            continue
        if node.op == "mul" and sum(here) == 1:
            continue
        if node.op == "div" and here == [True, False]:
            continue
        if node.op == "select" and not here[0]:
            continue
        names = sorted({n.index for n in ancestors([node]) if n.number in own and not n.args})
        said = " and ".join(f"{{{i}}}" for i in names)
        return {
            "mul": f"two values made of {said} are multiplied",
            "div": f"a division by a value made of {said}",
            "select": f"a choice by a value made of {said}",
        }.get(node.op, f"{node.op} of a value made of {said}")
    return None
