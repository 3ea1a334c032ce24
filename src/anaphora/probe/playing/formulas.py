"""Equations of a step, written from its graph: what has a name keeps it, all else is spelled out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anaphora.engine.graph import Node, ancestors
from anaphora.probe.playing.reel import Equation, Part

_INFIX = {"add": (" + ", 1), "sub": (" − ", 1), "mul": (" ∘ ", 2), "div": (" / ", 2)}
_CALLED = {"sigmoid": "σ", "rsqrt": "1/√", "sqrt": "√", "sum": "Σ", "maximum": "max", "still": ""}
_COMPARED = {"gt": " > ", "ge": " ≥ "}


class Writer:
    """Writes equations for the named nodes of a graph.

    ``names``: the name of a node by its number. ``letters(m)`` is the letter of matrix m, ``vector(i)`` the name of a vector
    parameter. A sum of products is one piece, which has a value of its own: ``groups`` has their nodes by name.
    """

    def __init__(
        self, names: Mapping[int, str], letters: Callable[[Node], str], vector: Callable[[Node], str]
    ):
        self.names, self._letters, self._vector = dict(names), letters, vector
        self.groups: dict[str, Node] = {}

    def equation(self, node: Node) -> Equation:
        """The equation of a named node."""
        name = self.names[node.number]
        return Equation(name, _joined(self._inner(node, 0, name)))

    def _write(self, node: Node, binding: int, owner: str) -> list[Part]:
        if node.number in self.names:
            return [{"ref": self.names[node.number]}]
        return self._inner(node, binding, owner)

    def _inner(self, node: Node, binding: int, owner: str) -> list[Part]:
        """``binding``: how tightly what stands around it binds; ``owner``: the name whose equation this is."""
        if is_affine(node):
            return self._around(self._group(node, owner), 1, binding)
        if node.op == "const":
            return [f"{node.value:g}".replace("-", "−")]
        if node.op == "vector":
            return [{"ref": self._vector(node)}]
        if node.op in _INFIX:
            sign, own = _INFIX[node.op]
            left = self._write(node.args[0], own, owner)
            right = self._write(node.args[1], own + (node.op in ("sub", "div")), owner)
            return self._around([*left, sign, *right], own, binding)
        if node.op == "neg":
            return self._around(["−", *self._write(node.args[0], 2, owner)], 1, binding)
        if node.op in _COMPARED:
            both = [self._write(argument, 1, owner) for argument in node.args]
            return ["[", *both[0], _COMPARED[node.op], *both[1], "]"]
        if node.op in ("spread", "slice"):
            return self._write(node.args[0], binding, owner)
        inner: list[Part] = []
        for argument in node.args:
            inner += [", " if inner else "", *self._write(argument, 0, owner)]
        if node.op in ("sum", "maximum"):
            inner = [part if isinstance(part, str) else {**part, "over": "all"} for part in inner]
        return [_CALLED.get(node.op, node.op), "(", *inner, ")"]

    @staticmethod
    def _around(parts: list[Part], own: int, binding: int) -> list[Part]:
        return ["(", *parts, ")"] if own < binding else parts

    def _group(self, node: Node, owner: str) -> list[Part]:
        """W x + U h′ + b as one piece: its text, and a name under which its value is found."""
        other = ""  # other weights of the same owner have other letters
        while self.groups.get(f"a{other}_{owner}", node) is not node:
            other += "′"
        taken = f"a{other}_{owner}"
        self.groups[taken] = node
        terms: list[str] = []
        products_first = sorted(_terms(node), key=lambda pair: _inside(pair[1]).op == "vector")
        for sign, term in products_first:
            inner = _inside(term)
            if inner.op == "vector":
                text = f"b{other}_{owner}"
            else:
                below = _joined(self._write(inner.args[0], 3, owner))
                shown = [p if isinstance(p, str) else p.get("text", p["ref"]) for p in below]
                text = f"{self._letters(inner)}{other}_{owner} {''.join(shown)}"
            terms += [sign if terms or sign == " − " else "", text]
        return [{"ref": taken, "text": "".join(terms)}]


def is_affine(node: Node) -> bool:
    """Whether a node is a sum of products with matrices and of vectors, at least one product among them."""
    inner = [_inside(term) for _, term in _terms(node)]
    return any(term.op == "product" for term in inner) and all(
        term.op in ("product", "vector") for term in inner
    )


def _inside(term: Node) -> Node:
    """What a term is a part of, where it is a part."""
    return term.args[0] if term.op == "slice" else term


def _terms(node: Node, sign: str = " + ") -> list[tuple[str, Node]]:
    if node.op == "add":
        return [*_terms(node.args[0], sign), *_terms(node.args[1], sign)]
    if node.op == "sub":
        return [*_terms(node.args[0], sign), *_terms(node.args[1], " − " if sign == " + " else " + ")]
    return [(sign, node)]


def shared(outputs: Sequence[Node], named: Mapping[int, str]) -> list[Node]:
    """Nodes that several others read and that have no name; written out each time they would make equations grow."""
    found: dict[int, int] = {}
    for node in ancestors(outputs):
        for argument in {a.number: a for a in node.args}.values():
            found[argument.number] = found.get(argument.number, 0) + 1
    plain = {"step", "row", "state", "vector", "const", "slice", "product", "spread", "cat"}
    return [
        node
        for node in ancestors(outputs)
        if found.get(node.number, 0) > 1 and node.number not in named and node.op not in plain
    ]


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Neighbouring texts as one."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return found
