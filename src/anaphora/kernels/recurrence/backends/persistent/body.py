"""Statements for the numbers of one column: ``v12_0[i]=(v3_1[i]*s0[i]);``.

The same text serves the GPU, where ``i`` counts the few columns of a thread, and a C compiler, where it counts all
columns of a row, which is how machines without a GPU test it.
"""

from __future__ import annotations

from collections.abc import Iterable

from anaphora.kernels.recurrence.backends.c.step_code import expression
from anaphora.kernels.recurrence.backends.persistent.columns import Key, Place, Program

_LETTERS = {
    "step": "t",
    "product": "x",
    "ahead": "a",
    "kept": "k",
    "row_kept": "w",
    "operand": "o",
    "row": "q",
}


def place_name(place: Place) -> str:
    """The variable that holds what lies at a place."""
    return f"{_LETTERS[place.kind]}{place.index}_{place.block}"


class Body:
    """Writes each number's statement once, where it is first asked for."""

    def __init__(self, program: Program):
        self.program, self.columns = program, program.columns
        self.written: set[Key] = set()
        self.declared: list[str] = []

    def name(self, key: Key) -> str:
        """An expression for a number that has been computed or read."""
        node = self.columns.nodes[key[0]]
        place = self.columns.place(key)
        if place is None:
            return f"K({node.value!r})" if node.op == "const" else f"v{key[0]}_{key[1]}[i]"
        if place.kind == "vector":
            return f"p{place.index}_{place.block}"
        if place.kind == "carried":
            # The gradient of the output at this step joins that of the first state.
            return "g0[i]" if self.program.backward and place.index == 0 else f"s{place.index}[i]"
        return f"{place_name(place)}[i]"

    def known(self, key: Key) -> None:
        """Say that an exchange has written this number."""
        self._declare(key)

    def _declare(self, key: Key) -> None:
        self.written.add(key)
        self.declared.append(f"v{key[0]}_{key[1]}")

    def statements(self, wanted: Iterable[Key]) -> list[str]:
        """What computes these numbers, arguments first; exchanged ones must be known already."""
        lines: list[str] = []
        stack = [(key, False) for key in reversed(list(wanted))]
        while stack:
            key, ready = stack.pop()
            node = self.columns.nodes[key[0]]
            if key in self.written or node.op == "const" or self.columns.place(key) is not None:
                continue
            if self.columns.exchanged(key):
                raise AssertionError(f"{node} is used before it was exchanged")
            arguments = self.columns.arguments(key)
            if ready:
                lines.append(f"{self.name(key)}={expression(node.op, [self.name(a) for a in arguments])};")
                self._declare(key)
            else:
                stack.append((key, True))
                stack.extend((a, False) for a in reversed(arguments))
        return lines
