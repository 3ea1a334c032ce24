"""Sums over a row rearranged, so that few of them travel and few have to wait for one another.

Σ (r·x + y) with r one number per row is r·Σx + Σy: what is summed no longer depends on r, which may itself be a sum.
The backward pass of a normalisation, as it is derived, sums what contains a sum; taken apart it needs one exchange.
What is left is put together again, r·Σx + r·Σy = r·Σ(x + y), so that four gates need one number and not four.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anaphora.kernels.recurrence.front.graph import Graph, Node, until
from anaphora.kernels.recurrence.front.plan import rebuild

Term = tuple[tuple[Node, ...], Node]  # (factors one wide, what is summed)


def rearrange_sums(graph: Graph, roots: Sequence[Node], known: Collection[int]) -> list[Node]:
    """The same values by fewer sums; ``known`` values stay as they are."""
    new: dict[int, Node] = {}
    for node in until(roots, known):
        if node.number in known or not node.args:
            new[node.number] = node
            continue
        args = [new[a.number] for a in node.args]
        new[node.number] = _joined(
            graph, _sum(graph, args[0], known) if node.op == "sum" else rebuild(graph, node, args)
        )
    return [new[r.number] for r in roots]


def is_centred(value: Node) -> bool:
    """Whether a value is x − x̄, the mean being that of its row: its sum is zero."""
    if value.op != "sub" or value.args[1].op != "mul":
        return False
    total, share = value.args[1].args
    same = total.op == "sum" and total.args[0] is value.args[0] and share.op == "const"
    return same and abs(share.value * value.width - 1) < 1e-9


def _sum(graph: Graph, value: Node, known: Collection[int]) -> Node:
    """Σ over a row of ``value``."""
    f = graph.pointwise
    if is_centred(value):
        return graph.const(0)
    if value.number in known or value.width == 1:
        return graph.reduce("sum", value)
    if value.op == "cat":
        total = _sum(graph, value.args[0], known)
        for part in value.args[1:]:
            total = f("add", total, _sum(graph, part, known))
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


def _joined(graph: Graph, node: Node) -> Node:
    """A sum of sums as sums of more; other values as they are."""
    if node.op not in ("add", "sub") or node.width != 1:
        return node
    terms = _terms(graph, node)
    if terms is None or len(terms) < 2:
        return node
    groups: dict[tuple[int, ...], list[Term]] = {}
    for factors, value in terms:
        groups.setdefault(tuple(sorted(f.number for f in factors)), []).append((factors, value))
    total = graph.const(0)
    for group in groups.values():
        values = [v for _, value in group for v in (value.args if value.op == "cat" else (value,))]
        # Made by hand: the graph itself would take the sum of a concatenation apart.
        part = (
            graph.node("sum", (graph.node("cat", values, sum(v.width for v in values)),))
            if len(values) > 1
            else graph.reduce("sum", values[0])
        )
        for factor in group[0][0]:
            part = graph.pointwise("mul", factor, part)
        total = graph.pointwise("add", total, part)
    return total


def _terms(graph: Graph, node: Node) -> list[Term] | None:
    """A value one wide as factors times sums; None when it is not made of sums alone."""
    if node.op == "sum":
        return [((), node.args[0])]
    if node.op in ("add", "sub"):
        left, right = (_terms(graph, a) for a in node.args)
        if left is None or right is None:
            return None
        return left + (_negated(graph, right) if node.op == "sub" else right)
    if node.op == "neg":
        inner = _terms(graph, node.args[0])
        return None if inner is None else _negated(graph, inner)
    if node.op == "mul":
        for factor, rest in (node.args, node.args[::-1]):
            inner = _terms(graph, rest)
            if inner is not None and _terms(graph, factor) is None:
                return [((factor, *factors), value) for factors, value in inner]
    return None


def _negated(graph: Graph, terms: list[Term]) -> list[Term]:
    made = []
    for factors, value in terms:
        parts = value.args if value.op == "cat" else (value,)
        parts = tuple(graph.pointwise("neg", p) for p in parts)
        made.append((factors, graph.node("cat", parts, value.width) if len(parts) > 1 else parts[0]))
    return made
