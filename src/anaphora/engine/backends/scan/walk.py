"""A plan's units over all steps, and the operations between them, as autograd sees them.

Each unit is one operation by its kernels, and so is each product; slices, joins and sums of rows are torch's.
Axes: B batch, T time, W a unit's width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from anaphora.engine.arguments import Arguments
from anaphora.engine.backends.base import Result, States
from anaphora.engine.backends.reference import live_rows, reverse_rows
from anaphora.engine.backends.torch_ops.passes import Evaluator
from anaphora.engine.graph import Node
from anaphora.engine.plan import Plan
from anaphora.engine.units import Columns, Unit, cut_units, reduces
from anaphora.native.fused import Backward, fused


class Given(NamedTuple):
    """What a unit is given: tensors, and where its columns lie in the sequences."""

    sequences: Sequence[Tensor]  # (B, T, ·), each once
    vectors: Sequence[Tensor]  # (W,)
    rows: Sequence[Tensor]  # (B, W)
    initial: Sequence[Tensor]  # (B, W)
    places: Sequence[tuple[int, int]]  # for each of the unit's columns: which sequence, and from which column

    def flat(self) -> list[Tensor]:
        return [t for group in self[:4] for t in group]

    def empty_gradients(self, unit: Unit) -> list[Tensor]:
        """Room for the gradients of the sequences: zeros where the unit does not write every column of one."""
        written = [0] * len(self.sequences)
        for s in unit.backward.steps:
            written[self.places[s][0]] += unit.width
        return [
            torch.empty_like(t) if wide == t.shape[-1] else torch.zeros_like(t)
            for t, wide in zip(self.sequences, written, strict=True)
        ]

    def counts(self) -> list[int]:
        return [len(group) for group in self[:4]]


def _grouped(tensors: Sequence[Tensor], counts: Sequence[int], places: Sequence[tuple[int, int]]) -> Given:
    """The flat list in its groups again."""
    groups, at = [], 0
    for count in counts:
        groups.append(tensors[at : at + count])
        at += count
    return Given(groups[0], groups[1], groups[2], groups[3], places)


@dataclass(frozen=True)
class Direction:
    """How a run goes over time."""

    lengths: Tensor | None  # (B,)
    reverse: bool  # from each row's end to its start
    batch: int
    time: int


@dataclass
class Gradients:
    """Of what a unit was given."""

    sequences: Sequence[Tensor]
    vectors: Sequence[Tensor]
    initial: Sequence[Tensor]


class Kernels(Protocol):
    """What computes units and products on some device."""

    def forward(
        self, unit: Unit, given: Given, how: Direction, keep: bool
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Exports ``(B, T, W)``, last states ``(B, W)``, and the new values of ``unit.remembered`` when ``keep``."""

    def backward(
        self,
        unit: Unit,
        given: Given,
        how: Direction,
        remembered: Sequence[Tensor],
        dexports: Sequence[Tensor | None],
        dlast: Sequence[Tensor | None],
    ) -> Gradients:
        """The gradients of what the unit was given; zero past each row's end."""

    def multiply(self, x: Tensor, matrix: Tensor, lengths: Tensor | None) -> Tensor:
        """x ``(B, T, K)`` times ``(N, K)`` transposed; what lies past a row's end may be anything."""

    def outer(self, g: Tensor, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Σ over rows and real steps of g ``(B, T, N)`` xᵀ ``(B, T, K)``: ``(N, K)``."""


def run_units(plan: Plan, given: Arguments, how: Direction, kernels: Kernels) -> Result:
    """y and the last states of a plan without loops."""
    return _Run(plan, given, how, kernels).result()


class _Run:
    def __init__(self, plan: Plan, given: Arguments, how: Direction, kernels: Kernels):
        self.plan, self.given, self.how, self.kernels = plan, given, how, kernels
        self.known: dict[int, Tensor] = {}  # (B, T, ·) by number
        self.size = (how.batch, how.time)

    def result(self) -> Result:
        last: dict[int, Tensor] = {}
        for unit in cut_units(self.plan):
            given = self._given(unit)
            found = _walked(unit, given, self.how, self.kernels)
            exports, ends = found[: len(unit.exports)], found[len(unit.exports) :]
            self.known.update({n.number: v for n, v in zip(unit.stored, exports, strict=True)})
            last.update(zip(unit.states, ends, strict=True))
        y = self.known[self.plan.outputs[0].number]
        return y, tuple(last[i] for i in range(len(self.given.initial)))

    def _given(self, unit: Unit) -> Given:
        tensors: dict[tuple[int, int], Tensor] = {}
        places = []
        for c in unit.sequences:
            key = (c.node.number, c.start if c.narrow else -1)
            if key not in tensors:
                tensors[key] = self._cut(c, self.value(c.node), unit.width).contiguous()
            places.append((list(tensors).index(key), 0 if c.narrow else c.start))
        vectors = [
            self._cut(c, self.given.vectors[c.node.index], unit.width, all_of_it=False) for c in unit.vectors
        ]
        rows = [self._cut(c, self.given.rows[c.node.index], unit.width, all_of_it=False) for c in unit.rows]
        initial = [self.given.initial[i] for i in unit.states]
        vectors, rows, initial = ([t.contiguous() for t in group] for group in (vectors, rows, initial))
        return Given(list(tensors.values()), vectors, rows, initial, places)

    @staticmethod
    def _cut(columns: Columns, value: Tensor, width: int, all_of_it: bool = True) -> Tensor:
        """The columns that are meant; of a sequence all of them, as the kernels find theirs by themselves."""
        if columns.narrow:
            return value[..., columns.start : columns.start + 1].expand(*value.shape[:-1], width)
        if all_of_it or value.shape[-1] == width:
            return value
        return value[..., columns.start : columns.start + width]

    def value(self, node: Node) -> Tensor:
        """A value of every step ``(B, T, ·)`` that units do not compute, or have stored."""
        found = self.known.get(node.number)
        if found is None:
            found = self.known[node.number] = self._value(node)
        return found

    def _value(self, node: Node) -> Tensor:
        if node.op == "step":
            value = self.given.steps[node.index]
            if self.how.lengths is None or not reduces(self.plan):
                return value
            # The gradient of a row's maximum is NaN where the row is, and padding may be.
            return torch.where(real_steps(value, self.how.lengths), value, value.new_zeros(()))
        if node.op == "row":
            return self.given.rows[node.index][:, None].expand(*self.size, node.width)
        if node.op == "vector":
            return self.given.vectors[node.index].expand(*self.size, node.width)
        if node.op == "const":
            return torch.full((*self.size, 1), node.value).to(self.given.steps[0])
        args = [self.value(a) for a in node.args]
        if node.op == "product":
            return product(self.kernels, args[0], self.given.matrices[node.index], self.how.lengths)
        if node.op == "slice":
            return args[0][..., node.index : node.index + node.width]
        if node.op == "cat":
            wide = [a.expand(*self.size, n.width) for a, n in zip(args, node.args, strict=True)]
            return torch.cat(wide, -1)
        if node.op == "spread":
            return args[0].expand(*self.size, node.width)
        if node.op == "sum":
            return args[0].sum(-1, keepdim=True)
        assert node.op == "maximum"
        return args[0].amax(-1, keepdim=True)


# ---------------------------------------------------------------------- units
def _walked(unit: Unit, given: Given, how: Direction, kernels: Kernels) -> list[Tensor]:
    """Exports and last states."""
    options = {"unit": unit, "how": how, "kernels": kernels, "counts": given.counts(), "places": given.places}
    return list(_walk(*given.flat(), **options))


def _forward(
    keep: bool,
    *tensors: Tensor,
    unit: Unit,
    how: Direction,
    kernels: Kernels,
    counts: Sequence[int],
    places: Sequence[tuple[int, int]],
) -> tuple[tuple[Tensor, ...], Sequence[Tensor]]:
    exports, last, remembered = kernels.forward(unit, _grouped(tensors, counts, places), how, keep)
    return (*exports, *last), remembered


def _backward(
    back: Backward,
    *,
    unit: Unit,
    how: Direction,
    kernels: Kernels,
    counts: Sequence[int],
    places: Sequence[tuple[int, int]],
) -> tuple[Tensor | None, ...]:
    kept, tensors, grads, _ = back
    given = _grouped(tensors, counts, places)
    dexports, dlast = grads[: len(unit.exports)], grads[len(unit.exports) :]
    made = kernels.backward(unit, given, how, kept, dexports, dlast)
    nothing = [None] * len(given.rows)
    return *made.sequences, *made.vectors, *nothing, *made.initial


def _by_torch(
    *tensors: Tensor,
    unit: Unit,
    how: Direction,
    kernels: Kernels,
    counts: Sequence[int],
    places: Sequence[tuple[int, int]],
) -> tuple[Tensor, ...]:
    return tuple(walk_by_torch(unit, _grouped(tensors, counts, places), how))


_walk = fused(_forward, _backward, _by_torch)


def walk_by_torch(unit: Unit, given: Given, how: Direction) -> list[Tensor]:
    """Exports and last states of a unit as a loop of torch operations: what its kernels must equal."""
    sequences = [given.sequences[k][..., start : start + unit.width] for k, start in given.places]
    if how.lengths is not None:  # products leave anything past a row's end, and 0 times NaN is no gradient
        real = real_steps(sequences[0], how.lengths) if sequences else None
        sequences = [s if real is None else torch.where(real, s, s.new_zeros(())) for s in sequences]
    if how.reverse:
        sequences = [reverse_rows(s, how.lengths) for s in sequences]
    values = {unit.graph.node("vector", (), unit.width, i).number: v for i, v in enumerate(given.vectors)}
    values |= {unit.graph.node("row", (), unit.width, i).number: v for i, v in enumerate(given.rows)}
    steps = [unit.graph.node("step", (), unit.width, i).number for i in range(len(sequences))]
    places = [unit.graph.node("state", (), unit.width, i).number for i in range(len(unit.states))]
    evaluate = Evaluator([*unit.outputs, *unit.exports], {*values, *steps, *places})
    like = given.flat()[0].new_empty(how.batch, unit.width)
    states: States = tuple(given.initial)
    live = live_rows(like.new_empty(how.batch, how.time, 0), how.lengths)
    stored: list[list[Tensor]] = [[] for _ in unit.exports]
    each = [s.unbind(1) for s in sequences]
    for t in range(how.time):
        now = [s[t] for s in each]
        found = evaluate(
            {**values, **dict(zip(steps, now, strict=True)), **dict(zip(places, states, strict=True))},
            [],
            like,
        )
        new, kept = found[: len(states)], found[len(states) :]
        if live is not None:
            new = [torch.where(live[t], n, s) for n, s in zip(new, states, strict=True)]
            kept = [torch.where(live[t], v, v.new_zeros(())) for v in kept]
        states = tuple(new)
        for place, value in zip(stored, kept, strict=True):
            place.append(value)
    exports = [torch.stack(values, 1) for values in stored]
    return [*(reverse_rows(e, how.lengths) if how.reverse else e for e in exports), *states]


# ---------------------------------------------------------------------- products
def product(kernels: Kernels, x: Tensor, matrix: Tensor, lengths: Tensor | None) -> Tensor:
    """x ``(B, T, K)`` times ``(N, K)`` transposed, for all steps at once."""
    found: Tensor = _product(x, matrix, kernels=kernels, lengths=lengths)
    return found


def _multiply(
    keep: bool, x: Tensor, matrix: Tensor, *, kernels: Kernels, lengths: Tensor | None
) -> tuple[Tensor, Sequence[Tensor]]:
    return kernels.multiply(x, matrix, lengths), ()


def _multiply_backward(
    back: Backward, *, kernels: Kernels, lengths: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    _, tensors, grads, needs = back
    (x, matrix), (g,), (wants_x, wants_matrix) = tensors, grads, needs
    dx = dmatrix = None
    if wants_x:
        dx = kernels.multiply(g, matrix.t(), lengths)
        if lengths is not None and x.device.type == "cpu":  # elsewhere it is a product of zeros
            dx = dx.masked_fill_(~real_steps(x, lengths), 0)
    if wants_matrix:
        dmatrix = kernels.outer(g, x, lengths)
    return dx, dmatrix


def _multiply_by_torch(x: Tensor, matrix: Tensor, *, kernels: Kernels, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return x @ matrix.t()
    real, nothing = real_steps(x, lengths), x.new_zeros(())
    return torch.where(real, torch.where(real, x, nothing) @ matrix.t(), nothing)


_product = fused(_multiply, _multiply_backward, _multiply_by_torch)


def real_steps(x: Tensor, lengths: Tensor) -> Tensor:
    """Which steps of x ``(B, T, ·)`` are real, ``(B, T, 1)``."""
    time = torch.arange(x.shape[1], device=x.device)
    return (time < lengths.to(x.device)[:, None]).unsqueeze(-1)
