"""Operations and constants of a plan as expressions in C, CUDA and Triton, for all backends that generate text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from anaphora.engine.graph import Node, until
from anaphora.engine.ops import OPS

NUMBERS = Path(__file__).with_name("numbers.cu")
"""Number types and functions of generated CUDA; a text that takes it in defines KIND and FAST before."""


def name_of(node: Node) -> str:
    """The variable that holds a node's value."""
    return f"{node.op}_{node.number}"


def expression(op: str, args: list[str]) -> str:
    """Return an operation of the plan in C, which is CUDA, too."""
    form = OPS[op].c
    return form.format(*args) if form else f"r_{op}({','.join(args)})"


def constant(value: float, digits: Callable[[float], str] = float.hex) -> str:
    """Return a constant of the plan in C; ``digits`` spells a finite one."""
    if value != value:
        return "K(NAN)"
    if abs(value) == float("inf"):
        return f"K({'-' if value < 0 else ''}INFINITY)"
    return f"K({digits(value)})"


def triton_expression(op: str, args: list[str]) -> str:
    """Return an operation of the plan in Triton."""
    return OPS[op].triton.format(*args)


def triton_constant(value: float) -> str:
    """Return a constant of the plan in Triton."""
    return f"({value!r})" if math.isfinite(value) else f"float('{value}')"


class Body:
    """Statements that compute values of a graph of pointwise operations; ``leaves``: the expressions that read them."""

    def __init__(self, leaves: Mapping[int, str], names: Mapping[int, str] | None = None):
        """``names``: values that have been computed before."""
        self.leaves = leaves
        self.names: dict[int, str] = dict(names or {})
        self.lines: list[str] = []

    def value(self, root: Node) -> str:
        """The name of a value; statements that compute it are added to ``lines``."""
        for node in until([root], self.names):
            if node.number in self.names:
                continue
            if node.op == "const":
                self.names[node.number] = constant(node.value)
            elif node.op == "spread":
                self.names[node.number] = self.names[node.args[0].number]
            else:
                if not node.args:
                    text = self.leaves[node.number]
                else:
                    text = expression(node.op, [self.names[a.number] for a in node.args])
                self.names[node.number] = f"v{node.number}"
                self.lines.append(f"const R v{node.number} = {text};")
        return self.names[root.number]


def reductions(reduced: list[tuple[Node, str]], bound: str) -> list[str]:
    """Lines that reduce terms of the same width: sums together, as each waits for itself."""
    sums = [(node, terms) for node, terms in reduced if node.op == "sum"]
    lines = []
    for node, terms in reduced:
        if node.op != "sum":
            lines.append(f"const R {name_of(node)} = row_{node.op}({terms}, {bound});")
    for k in range(0, len(sums), 4):
        some = sums[k : k + 4]
        number, count = some[0][0].number, len(some)
        lines.append(f"const R *const rows_{number}[] = {{{', '.join(terms for _, terms in some)}}};")
        lines.append(f"R sums_{number}[{count}];")
        lines.append(f"row_sums({count}, rows_{number}, {bound}, sums_{number});")
        lines += [f"const R {name_of(node)} = sums_{number}[{i}];" for i, (node, _) in enumerate(some)]
    return lines
