"""What the generated functions have in common: arguments, scratch memory, row pointers, how they open and are laid out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from anaphora.engine.graph import Node


@dataclass
class Function:
    """One function being written: its arrays in order, its scratch memory, and its row pointers."""

    name: str
    arrays: list[str] = field(default_factory=list)
    scratch: list[tuple[str, str]] = field(default_factory=list)  # (name, size)
    pointers: dict[str, str] = field(default_factory=dict)

    def array(self, name: str) -> None:
        if name not in self.arrays:
            self.arrays.append(name)

    def everywhere(self, pointer: str, name: str, width: str) -> None:
        """An array with a row for every step of every sequence."""
        self.array(name)
        self.pointers[pointer] = f"{name} + at*{width}"

    def buffer(self, pointer: str, name: str, width: str) -> None:
        """Scratch memory with a row for every sequence at work."""
        self.scratch.append((name, f"C * {width}"))
        self.pointers[pointer] = f"{name} + i*{width}"


def leaf_pointers(tables: Tables, f: Function, given: dict[int, str], nodes: list[Node]) -> None:
    for node in nodes:
        name = f"{node.op}{node.index}"
        if node.op == "step":
            f.everywhere(f"{name}_row", name, tables.size(("step width", node.index), node.width))
        elif node.op == "row":
            f.array(name)
            f.pointers[f"{name}_row"] = (
                f"{name} + ROW[i]*{tables.size(('row width', node.index), node.width)}"
            )
        elif node.op == "vector":
            f.array(name)
            f.pointers[f"{name}_row"] = name
        else:
            continue
        given[node.number] = f"{name}_row"


def copy(to: str, source: str, width: str) -> str:
    return f"memcpy({to}, {source}, {width} * sizeof(R));\n"


def opening(tables: Tables, f: Function, text: str) -> str:
    """The start of a function that works on one part of the rows, longest first; declares what ``text`` uses."""
    words = set(re.findall(r"\w+", text))
    declared = [f"const L {name} = n[{4 + i}];" for i, name in enumerate(tables.size_names) if name in words]
    for i in range(len(tables.constants)):
        if f"constant_{i}" in words:
            declared.append(f"const R constant_{i} = ((const R *)p[2])[{i}];")
    declared += [f"R *const {name} = p[{3 + i}];" for i, name in enumerate(f.arrays) if name in words]
    lines = "\n".join(declared)
    return f"""
static int {f.name}_part(const L *n, void *const *p, L part) {{
/* n: time, batch, whether in reverse, threads, sizes; p: order and lengths of the rows, constants, arrays */
const L T = n[0], B = n[1], reverse = n[2], threads = n[3];
const L *const order = p[0], *const length = p[1];
{lines}
/* this part's rows, from the longest to the shortest: ROW in the batch, LENgth, GROUP that it belongs to */
L C = 0;
for (L g = part; g * GROUP < B; g += threads) C += B - g * GROUP < GROUP ? B - g * GROUP : GROUP;
if (!C) return 0;
L ROW[C], LEN[C], GRP[C];
C = 0;
for (L g = part; g * GROUP < B; g += threads)
for (L r = g * GROUP; r < B && r < (g + 1) * GROUP; r++) {{
ROW[C] = order[r];
LEN[C] = length[r];
GRP[C] = g;
C++;
}}
(void)GRP;
const L last_step = LEN[0];
/* where step t of row i lies in an array with a row for every step of every sequence */
#define AT(i) (ROW[i] * T + (reverse ? LEN[i] - 1 - t : t))
"""


def laid_out(text: str) -> str:
    """Lines set in by their braces; empty ones left out."""
    lines, depth = [], 0
    for line in (line.strip() for line in text.splitlines()):
        if not line:
            continue
        inner = depth - line.startswith("}")
        lines.append(line if line.startswith("#") else "  " * inner + line)
        depth += line.count("{") - line.count("}")
    return "\n".join(lines) + "\n"


# ----------------------------------------------------------------------
# What a generated program is made from: sizes and constants, values to store, products to compute.
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
