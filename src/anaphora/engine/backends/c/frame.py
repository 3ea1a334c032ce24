"""What the generated functions have in common: arguments, scratch memory, row pointers, how they open and are laid out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from anaphora.engine.backends.c.tables import Tables
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
