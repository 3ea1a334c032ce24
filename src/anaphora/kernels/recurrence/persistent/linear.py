"""Sums over a row taken apart where they are linear, so that fewer of them have to wait for one another.

Σ (r·x + y) with r one number per row is r·Σx + Σy: what is summed no longer depends on r, which may itself be a sum.
The backward pass of a normalisation, as it is derived, sums what contains a sum; taken apart it needs one exchange.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anaphora.kernels.recurrence.graph import Graph, Node, until
from anaphora.kernels.recurrence.plan import rebuild


def split_sums(graph: Graph, roots: Sequence[Node], known: Collection[int]) -> list[Node]:
    """The same values with their sums taken apart; ``known`` values stay as they are."""
    new: dict[int, Node] = {}
    for node in until(roots, known):
        if node.number in known or not node.args:
            new[node.number] = node
            continue
        args = [new[a.number] for a in node.args]
        new[node.number] = _sum(graph, args[0], known) if node.op == "sum" else rebuild(graph, node, args)
    return [new[r.number] for r in roots]


def _sum(graph: Graph, value: Node, known: Collection[int]) -> Node:
    """Σ over a row of ``value``."""
    f = graph.pointwise
    if value.number in known or value.width == 1:
        return graph.reduce("sum", value)
    if value.op == "cat":
        parts = [_sum(graph, graph.spread(p, p.width), known) for p in value.args]
        total = parts[0]
        for part in parts[1:]:
            total = f("add", total, part)
        return total
    if value.op in ("add", "sub"):
        return f(value.op, *(_sum(graph, graph.spread(a, value.width), known) for a in value.args))
    if value.op == "neg":
        return f("neg", _sum(graph, value.args[0], known))
    if value.op == "mul":
        a, b = value.args
        a, b = (b, a) if b.width == 1 else (a, b)
        if a.width == 1:
            return f("mul", a, _sum(graph, b, known))
    return graph.reduce("sum", value)
