"""Where the tensors of a call belong in the kernels' arrays: found once, since it does not depend on the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from anaphora.kernels.recurrence.backends.persistent.columns import Key, Program
from anaphora.kernels.recurrence.backends.persistent.program import Programs, together
from anaphora.kernels.recurrence.front.graph import Node


@dataclass(frozen=True)
class Entries:
    """Neighbouring entries of a shared array, and the numbers of the plan that lie there, in the plan's order."""

    start: int
    entries: tuple[Key, ...]
    wanted: tuple[Key, ...]

    @cached_property
    def in_order(self) -> bool:
        """Whether the entries are the plan's numbers one by one."""
        return self.wanted == self.entries

    def of(self, shared: Tensor, padded: int) -> Tensor:
        """Their columns of a shared array."""
        first, count = self.start * padded, len(self.entries) * padded
        return shared if count == shared.shape[1] else shared[:, first : first + count]


@dataclass(frozen=True)
class Packed:
    """A matrix a kernel reads: number ``matrix`` of the call, transposed or not, for these entries."""

    matrix: int
    transposed: bool
    at: Entries


@dataclass(frozen=True)
class Gradient:
    """A product of the plan: where the gradient of its value lies, and what it multiplied if that was exchanged."""

    matrix: int
    source: Node
    at: Entries
    operand: Entries | None


class Layout:
    """Everything about names and places that two passes of a plan have to look up."""

    def __init__(self, programs: Programs):
        forward, backward = programs.forward, programs.backward
        places = {*forward.places, *backward.places}
        nodes = forward.columns.nodes | backward.columns.nodes
        numbers = {kind: sorted({p.index for p in places if p.kind == kind}) for kind in _KINDS}
        self.vectors, self.rows, self.steps = numbers["vector"], numbers["row"], numbers["step"]
        self.products = [nodes[n] for n in numbers["product"]]
        self.ahead = [nodes[n] for n in numbers["ahead"]]
        self.gradients = [
            Gradient(
                product.index,
                product.args[0],
                entries_of(backward.shared, keys),
                None
                if product.args[0].op == "step"
                else entries_of(forward.shared, forward.columns.keys(product.args[0])),
            )
            for product, keys in programs.products
            if backward.shared
        ]
        self.multiplied = {g.source.index for g in self.gradients if g.operand is None}

    @staticmethod
    def matrices(program: Program) -> list[Packed]:
        """In the order of the program's products."""
        found = []
        for e in program.products:
            m = e.matrix if e.matrix >= 0 else -1 - e.matrix
            found.append(Packed(m, e.matrix < 0, entries_of(program.shared, e.operands)))
        return found


_KINDS = ("vector", "row", "step", "product", "ahead")


def entries_of(shared: list[Key], wanted: Sequence[Key]) -> Entries:
    start = together(shared, wanted)
    return Entries(start, tuple(shared[start : start + len(set(wanted))]), tuple(wanted))
