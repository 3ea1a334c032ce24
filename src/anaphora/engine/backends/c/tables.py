"""What a generated program is made from: sizes and constants, values to store, products to compute."""

from __future__ import annotations

from dataclasses import dataclass, field

from anaphora.engine.graph import Node

_PLAIN = {0.0: "K(0)", 1.0: "K(1)", -1.0: "K(-1)", 0.5: "K(0.5)", -0.5: "K(-0.5)", 2.0: "K(2)"}


@dataclass
class Tables:
    """Sizes and constants of a program: given at run time, so that one compiled program serves all of them."""

    sizes: list[int] = field(default_factory=list)
    constants: list[float] = field(default_factory=list)
    size_names: list[str] = field(default_factory=list)
    _names: dict[object, str] = field(default_factory=dict)

    def size(self, role: tuple[str, *tuple[int, ...]], value: int) -> str:
        """A name for the size that plays this role: ("state width", 0) is called state_width_0."""
        if role not in self._names:
            self._names[role] = "_".join([role[0].replace(" ", "_"), *map(str, role[1:])])
            self.sizes.append(value)
            self.size_names.append(self._names[role])
        return self._names[role]

    def constant(self, node: Node) -> str:
        if node.value in _PLAIN and str(node.value) != "-0.0":
            return _PLAIN[node.value]
        role = ("constant", node.number)
        if role not in self._names:
            self._names[role] = f"constant_{len(self.constants)}"
            self.constants.append(node.value)
        return self._names[role]


@dataclass(frozen=True)
class Store:
    """Write a value to an array: ``target`` is the name of the pointer to the row's part of it."""

    node: Node
    target: str
    add: bool = False


@dataclass
class Product:
    """A product inside the step: input rows, output rows, and the packed matrix."""

    node: Node
    source: str  # row pointers
    target: str
    matrix: int  # negative: the transpose of matrix -1 - m
    add: bool = False
