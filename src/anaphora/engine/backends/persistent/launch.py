"""The two passes of a plan as programs of single columns, and where each leaves what the other needs.

The forward program keeps values for the backward one: per column (``keep``), one number per row (``keep_rows``), and what it
published, which lies in the shared array anyway. The backward program reads them at their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import torch
from torch import Tensor
from torch.nn.functional import pad

from anaphora.engine.backends.persistent.columns import (
    Columns,
    Key,
    Place,
    Program,
    Unsuitable,
    find,
    rearrange_sums,
)
from anaphora.engine.backends.persistent.source import NAME, Kernel
from anaphora.engine.backends.persistent.tiling import Tiling, cost
from anaphora.engine.graph import Node
from anaphora.engine.plan import Plan, backward_roots
from anaphora.native.cuda import Loaded, machine_code, watch

MOST_ORDERED = 6  # columns whose every order is tried


@dataclass
class Programs:
    """Both passes of a plan, for states of ``hidden`` units."""

    plan: Plan
    hidden: int
    forward: Program
    backward: Program
    products: list[tuple[Node, list[Key]]]  # of the plan, each with the gradient of its value by columns
    step_gradient: list[Key]  # of x, apart from what comes through products
    vector_gradients: dict[int, list[Key]]

    @cached_property
    def running(self) -> Program:
        """The forward pass when no backward pass follows."""
        return _forward(self.plan, self.hidden, ())


def make_programs(plan: Plan) -> Programs:
    """Raises :class:`Unsuitable` where the plan does not divide into columns."""
    hidden = plan.state_widths[0]
    if hidden < 2 or any(w != hidden for w in plan.state_widths):
        raise Unsuitable(
            f"its states are {plan.state_widths} wide; they must be equally wide, and wider than one"
        )
    forward = _forward(plan, hidden, plan.keep)
    return _backward(plan, hidden, forward)


def _forward(plan: Plan, hidden: int, keep: Sequence[Node]) -> Program:
    columns = Columns(hidden)
    results = [columns.key(output, 0) for output in plan.outputs]
    probe = Program(columns, False, len(results), results, [], [], [], [])
    shared = _arranged([e.operands for e in probe.products], [])
    kept = dict.fromkeys(k for n in keep if columns.in_loop(n) for k in columns.keys(n))
    row = [k for k in kept if columns.nodes[k[0]].width == 1]
    whole = [k for k in kept if k not in shared and k not in row]
    return Program(columns, False, len(results), results, shared, whole, row, [])


def _backward(plan: Plan, hidden: int, forward: Program) -> Programs:
    kept = {k: Place("kept", 0, i) for i, k in enumerate(forward.keep)}
    kept |= {k: Place("row_kept", 0, i) for i, k in enumerate(forward.keep_rows)}
    kept |= {
        k: Place("operand", 0, i)
        for i, k in enumerate(forward.shared)
        if forward.columns.in_loop(forward.columns.nodes[k[0]])
    }
    columns = Columns(hidden, kept, plan.views)
    derived = plan.backward
    roots = backward_roots(derived)
    linear = rearrange_sums(plan.graph, roots, {number for number, _ in kept})
    new = dict(zip((r.number for r in roots), linear, strict=True))
    results = [columns.key(new[n.number], 0) for n in derived.states]
    steps = [columns.keys(new[n.number]) for n in derived.steps.values()]
    vectors = {i: columns.keys(new[n.number]) for i, n in derived.vectors.items()}
    products = [(p, columns.keys(new[g.number])) for p, g in derived.products]
    gradients = [k for _, keys in products for k in keys]
    probe = Program(columns, True, len(results), [*results, *gradients], [], [], [], [])
    exchanged = [e.operands for e in probe.products]
    shared = _arranged(exchanged, [tuple(keys) for _, keys in products] + [tuple(k) for k in steps])
    sums = list(dict.fromkeys(k for keys in vectors.values() for k in keys))
    backward = Program(columns, True, len(results), results, shared, [], [], sums)
    return Programs(plan, hidden, forward, backward, products, steps[0] if steps else [], vectors)


def _arranged(exchanged: Sequence[tuple[Key, ...]], others: Sequence[tuple[Key, ...]]) -> list[Key]:
    """An order of all columns in which each group lies together; a column comes twice where there is none."""
    groups = [set(g) for g in (*exchanged, *others)]
    distinct = list(dict.fromkeys(k for g in (*exchanged, *others) for k in g))
    if len(distinct) <= MOST_ORDERED:
        for order in permutations(distinct):
            if all(find(list(order), g) is not None for g in groups):
                return list(order)
    row: list[Key] = []
    for group in (*exchanged, *others):
        if find(row, group) is None:
            row.extend(dict.fromkeys(group))
    return row


def together(shared: list[Key], wanted: Sequence[Key]) -> int:
    """Where a group of columns starts; all groups were arranged to lie together."""
    at = find(shared, wanted)
    if at is None:
        raise Unsuitable("the gradients of its products cannot be laid out together")
    return at


# ----------------------------------------------------------------------
# Where the tensors of a call belong in the kernels' arrays, and matrices and gradients brought into that order.
#
# A kernel knows columns by their *entry* in its shared array, each padded to whole slices; the plan knows them by their
# place in a value. Entries usually follow the plan's order, and then nothing is moved. What belongs where does not depend on
# the numbers, so it is found once (:class:`Layout`); packing and unpacking happen at every call.
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


# ----------------------------------------------------------------------
# One kernel for certain sizes on one GPU: compiled at its first run, and launched.
Arrays = dict[str, Tensor | None]


@dataclass
class Pass:
    """One pass for certain sizes on one GPU: its kernel, compiled when it is first run."""

    kernel: Kernel
    device: torch.device
    architecture: str
    sms: int

    @cached_property
    def loaded(self) -> Loaded:
        code = machine_code(self.kernel.source, self.architecture, "steps")
        tiling = self.kernel.tiling
        return Loaded(code, NAME, tiling.shared_memory, 32 * tiling.warps, tiling.cluster)

    @cached_property
    def matrices(self) -> list[Packed]:
        return Layout.matrices(self.kernel.program)

    @property
    def tiling(self) -> Tiling:
        return self.kernel.tiling

    @property
    def program(self) -> Program:
        return self.kernel.program

    @property
    def share(self) -> int:
        """The SMs of one direction."""
        return self.sms // self.kernel.sides

    def blocks(self, batch: int) -> int:
        """Of one direction."""
        return self.tiling.grid(batch, self.share)

    def cost(self, batch: int) -> float:
        """Microseconds per step, about."""
        return cost(self.program, self.tiling, batch, self.kernel.kind != "tf32", self.share)

    def run(self, sides: Sequence[Arrays], time: int, batch: int, reverse: bool, time_first: bool) -> None:
        """Launch; the arrays of every direction by the names of the kernel's parameters.

        ``time_first``: y, or its gradient, has the time first in memory, and not the batch.
        """
        index = self.device.index or 0
        pointers = [arrays.get(name) for arrays in sides for _, name in self.kernel.parameters]
        pointers += watch(index)
        grid = len(sides) * self.blocks(batch)
        numbers = [time, batch, int(reverse), self.tiling.groups(batch), int(time_first)]
        here = torch.cuda.current_device() == index
        with (
            nullcontext() if here else torch.cuda.device(index)
        ):  # the latter takes as long as a small kernel
            self.loaded.launch(grid, pointers, numbers)

    def shared_arrays(self, like: Tensor, rows: int) -> Arrays:
        """What blocks exchange through, filled with the word that stands for nothing yet."""
        width, sums = self.kernel.shared_width, self.kernel.reduction_width * self.tiling.slices
        arrays: Arrays = {}
        if width:
            shared = torch.empty(rows, width, dtype=like.dtype, device=like.device)
            if self.kernel.polled:
                shared.view(torch.int32).fill_(-1)
            arrays["SHARED"] = shared
        if sums:
            arrays["ROWS"] = torch.full((rows, sums), -1, dtype=torch.int32, device=like.device)
        return arrays
