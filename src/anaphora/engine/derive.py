"""The backward pass of a step, derived from its graph by the rules of the calculus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from anaphora.engine.graph import LEAVES, Graph, Node, ancestors
from anaphora.engine.ops import OPS


@dataclass
class Derivative:
    """What one step of the backward pass computes, as nodes of the same graph.

    Transposed products are products too: matrix ``-1 − m`` is the transpose of matrix m.
    """

    states: list[Node]  # gradient of each state before the step
    steps: dict[int, Node]  # of each step input, apart from what flows through its products
    vectors: dict[int, Node]  # of each vector parameter, to be summed over rows and steps
    products: list[tuple[Node, Node]] = field(default_factory=list)  # (product, gradient of its value)


def derive(
    graph: Graph,
    outputs: list[Node],
    seeds: list[Node],
    state_widths: list[int],
    wanted_steps: set[int],
    matrix_widths: Mapping[int, int],
) -> Derivative:
    """Differentiate ``outputs`` (the new states), whose gradients are ``seeds``.

    ``matrix_widths[m]`` is the width of the input of matrix m. Products with a step input pass no gradient on here:
    that is one product for all steps, done after the loop.
    """
    flows: dict[int, list[tuple[int, Node]]] = {}

    def flow(node: Node, gradient: Node, start: int = 0) -> None:
        if node.op == "slice":
            flow(node.args[0], gradient, node.index + start)
        elif node.op != "const":
            flows.setdefault(node.number, []).append((start, gradient))

    for output, seed in zip(outputs, seeds, strict=True):
        flow(output, seed)
    result = Derivative([graph.spread(graph.const(0), w) for w in state_widths], {}, {})
    for node in reversed(ancestors(outputs)):
        if node.number not in flows or node.op == "slice":
            continue
        gradient = _assembled(graph, node.width, flows[node.number])
        if node.op in LEAVES:
            if node.op == "state":
                result.states[node.index] = gradient
            elif node.op == "step" and node.index in wanted_steps:
                result.steps[node.index] = gradient
            elif node.op == "vector":
                result.vectors[node.index] = gradient
        elif node.op == "product":
            result.products.append((node, gradient))
            if node.args[0].op != "step":
                flow(node.args[0], graph.product(gradient, -1 - node.index, matrix_widths[node.index]))
        elif node.number in graph.peaks:
            parts = graph.peaks[node.number]
            for part, own in zip(parts, _peak(graph, node, parts, gradient), strict=True):
                flow(part, own)
        elif node.op == "cat":
            at = 0
            for part in node.args:
                flow(part, graph.slice(gradient, at, part.width))
                at += part.width
        elif node.op == "spread":
            flow(node.args[0], graph.reduce("sum", graph.spread(gradient, node.width)))
        else:
            for argument, share in zip(node.args, _shares(graph, node, gradient), strict=True):
                if share is not None:
                    narrow = argument.width == 1 and node.width > 1 and node.op not in ("sum", "maximum")
                    flow(argument, graph.reduce("sum", graph.spread(share, node.width)) if narrow else share)
    result.products.reverse()
    return result


def _assembled(graph: Graph, width: int, flows: list[tuple[int, Node]]) -> Node:
    """The sum of gradients of parts of a value, as one value of the whole width."""
    sized = [(start, g, _reach(start, g, width)) for start, g in flows]
    if all(start == 0 and end == width for start, _, end in sized):
        total = graph.total(g for _, g, _ in sized)
        return graph.spread(total, width) if total.width != width else total
    edges = sorted({0, width, *(s for s, _, _ in sized), *(e for _, _, e in sized)})
    parts = []
    for low, high in pairwise(edges):
        here = [
            g if g.width == 1 and end - start > 1 else graph.slice(g, low - start, high - low)
            for start, g, end in sized
            if start <= low and high <= end
        ]
        parts.append(graph.spread(graph.total(here), high - low))
    return graph.cat(parts)


def _reach(start: int, gradient: Node, width: int) -> int:
    # A gradient one wide that belongs to a wider part arrives spread, so its width is the part's.
    return start + gradient.width if gradient.op != "const" else width


def _shares(graph: Graph, node: Node, gradient: Node) -> tuple[Node | None, ...]:
    """The gradient of each argument; ``None`` where there is none."""
    graph.const(1)  # takes its number before what follows: generated text names values by their numbers
    if node.op == "sum":
        return (graph.spread(gradient, node.args[0].width),)
    if node.op == "maximum":
        return tuple(_peak(graph, node, [node.args[0]], gradient))
    return OPS[node.op].gradient(graph.pointwise, graph.const, node, gradient, *node.args)


def _peak(graph: Graph, node: Node, parts: list[Node], g: Node) -> list[Node]:
    """The gradient of a row's maximum goes to the places that reach it, in equal shares: with a NaN in the row no place
    does, and 0 / 0 is NaN everywhere, as in torch."""
    f = graph.pointwise
    reached = [f("ge", part, node) for part in parts]
    share = f("div", g, graph.total(graph.reduce("sum", at) for at in reached))
    return [f("mul", share, at) for at in reached]
