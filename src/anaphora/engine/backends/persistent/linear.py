"""Sums over a row rearranged, so that few of them travel and few have to wait for one another.

Σ (r·x + y) with r one number per row is r·Σx + Σy: what is summed no longer depends on r, which may itself be a sum.
The backward pass of a normalisation, as it is derived, sums what contains a sum; taken apart it needs one exchange.
What is left is put together again, r·Σx + r·Σy = r·Σ(x + y), so that four gates need one number and not four.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anaphora.engine.graph import Graph, Node, until
from anaphora.engine.plan import rebuild

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
            graph, _sum(graph, args[0], known) if node.op == "sum" else _rebuilt(graph, node, args)
        )
    return [new[r.number] for r in roots]


def is_centred(value: Node) -> bool:
    """Whether a value is x − x̄, the mean being that of its row: its sum is zero."""
    if value.op != "sub" or value.args[1].op != "mul":
        return False
    total, share = value.args[1].args
    same = total.op == "sum" and total.args[0] is value.args[0] and share.op == "const"
    return same and abs(share.value * value.width - 1) < 1e-9


def _nothing(graph: Graph) -> Node:
    """A sum that is zero because its terms cancel. Unlike any other zero, it takes its products with it: the graph itself
    keeps 0 · x, which is NaN where x is."""
    return graph.node("const", (), 1, index=1, value=0.0)


def _without(graph: Graph, op: str, args: Sequence[Node]) -> Node | None:
    """An operation on something that is nothing: a product with it is nothing, and it adds nothing."""
    nothing = _nothing(graph)
    if not any(a is nothing for a in args) or op not in ("mul", "neg", "add", "sub"):
        return None
    if op in ("mul", "neg"):
        return nothing
    a, b = args
    if b is nothing:
        return a
    return b if op == "add" else graph.pointwise("neg", b)


def _rebuilt(graph: Graph, node: Node, args: list[Node]) -> Node:
    """The operation on other arguments."""
    simple = _without(graph, node.op, args)
    return rebuild(graph, node, args) if simple is None else graph.spread(simple, node.width)


def _narrow(graph: Graph, op: str, args: list[Node]) -> Node:
    """The operation on sums."""
    simple = _without(graph, op, args)
    return graph.pointwise(op, *args) if simple is None else simple


def _sum(graph: Graph, value: Node, known: Collection[int]) -> Node:
    """Σ over a row of ``value``."""
    if is_centred(value):
        return _nothing(graph)
    if value.number in known or value.width == 1:
        return graph.reduce("sum", value)
    if value.op == "cat":
        sums = [_sum(graph, part, known) for part in value.args]
        return graph.total([s for s in sums if s is not _nothing(graph)] or sums[:1])
    if value.op in ("add", "sub", "neg"):
        wide = [graph.spread(a, value.width) for a in value.args]
        return _narrow(graph, value.op, [_sum(graph, a, known) for a in wide])
    if value.op == "mul":
        a, b = value.args
        a, b = (b, a) if b.width == 1 else (a, b)
        if a.width == 1:
            return _narrow(graph, "mul", [a, _sum(graph, b, known)])
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
    parts = []
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
        parts.append(part)
    return graph.total(parts)


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
