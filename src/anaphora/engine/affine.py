"""The rates of an affine update: what each leaf is multiplied by."""

from __future__ import annotations

from collections.abc import Sequence

from anaphora.engine.graph import Graph, Node, ancestors
from anaphora.engine.rings import dependent


def split_affine(
    graph: Graph, updates: Sequence[Node], kind: str, indices: Sequence[int]
) -> dict[tuple[int, int], Node]:
    """∂ update i / ∂ leaf j of a kind, for updates that are affine in these leaves; ``updates`` belong to ``indices``.

    Pairs whose rate is zero are left out.
    """
    own = dependent(updates, {(kind, i) for i in indices})
    f, zero = graph.pointwise, graph.const(0)
    rates: dict[int, dict[int, Node]] = {}  # by node, by leaf
    for node in ancestors(updates):
        if node.number not in own:
            continue
        parts = [rates.get(a.number, {}) for a in node.args]
        reads = sorted({j for part in parts for j in part})
        if not node.args:
            rates[node.number] = {node.index: graph.const(1)}
        elif node.op in ("add", "sub"):
            found = {}
            for j in reads:
                a, b = parts[0].get(j), parts[1].get(j)
                if a is None and b is not None:
                    found[j] = b if node.op == "add" else f("neg", b)
                elif a is not None:
                    found[j] = a if b is None else f(node.op, a, b)
            rates[node.number] = found
        elif node.op == "neg":
            rates[node.number] = {j: f("neg", parts[0][j]) for j in reads}
        elif node.op in ("mul", "div"):
            which = 0 if parts[0] else 1
            factor = node.args[1 - which]
            rates[node.number] = {j: f(node.op, parts[which][j], factor) for j in reads}
        elif node.op == "select":
            _, one, other = parts
            given = {j: (one.get(j, zero), other.get(j, zero)) for j in reads}
            rates[node.number] = {j: f("select", node.args[0], *pair) for j, pair in given.items()}
        else:
            assert node.op == "spread"
            rates[node.number] = parts[0]
    return {
        (i, j): rate
        for i, update in zip(indices, updates, strict=True)
        for j, rate in rates.get(update.number, {}).items()
    }
