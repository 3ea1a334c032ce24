"""Where the tensors of a call belong in the kernels' arrays, and matrices and gradients brought into that order.

A kernel knows columns by their *entry* in its shared array, each padded to whole slices; the plan knows them by their
place in a value. Entries usually follow the plan's order, and then nothing is moved. What belongs where does not depend on
the numbers, so it is found once (:class:`Layout`); packing and unpacking happen at every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from anaphora.engine.backends.persistent.columns import Key, Program
from anaphora.engine.backends.persistent.program import Programs, together
from anaphora.engine.graph import Node


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


# ---------------------------------------------------------------------- packing
def pack_depth(
    matrix: Tensor, wanted: Sequence[Key], entries: Sequence[Key], hidden: int, padded: int
) -> Tensor:
    """Rows of blocks, each block one column of the result: ``(blocks·H, blocks·H)`` to ``(blocks·P, entries·P)``.

    ``matrix`` multiplies values made of the numbers ``wanted``; the result multiplies the array's ``entries``.
    """
    if tuple(wanted) == tuple(entries) and padded == hidden:
        return matrix.contiguous()
    parts = []
    for entry in entries:
        found = [matrix[:, k * hidden : (k + 1) * hidden] for k, key in enumerate(wanted) if key == entry]
        block = found[0]
        for more in found[1:]:
            block = block + more
        parts.append(pad(block, (0, padded - hidden)) if padded > hidden else block)
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    if padded > hidden:
        rows = whole.shape[0] // hidden
        whole = pad(whole.reshape(rows, hidden, -1), (0, 0, 0, padded - hidden)).reshape(rows * padded, -1)
    return whole.contiguous()


def pack_rows(
    matrix: Tensor, wanted: Sequence[Key], entries: Sequence[Key], hidden: int, padded: int
) -> Tensor:
    """The same for rows: ``(wanted·H, n)`` to ``(entries·P, n)``, where n stays."""
    if tuple(wanted) == tuple(entries) and padded == hidden:
        return matrix
    parts = []
    for entry in entries:
        found = [matrix[k * hidden : (k + 1) * hidden] for k, key in enumerate(wanted) if key == entry]
        block = found[0]
        for more in found[1:]:
            block = block + more
        parts.append(pad(block, (0, 0, 0, padded - hidden)) if padded > hidden else block)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def unpack_rows(
    gradient: Tensor, wanted: Sequence[Key], entries: Sequence[Key], hidden: int, padded: int
) -> Tensor:
    """The way back: ``(entries·P, n)`` to ``(wanted·H, n)``."""
    if tuple(wanted) == tuple(entries) and padded == hidden:
        return gradient
    starts = [list(entries).index(key) * padded for key in wanted]
    parts = [gradient[s : s + hidden] for s in starts]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
