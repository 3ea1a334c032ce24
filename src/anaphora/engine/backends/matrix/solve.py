"""A cell with matrix-valued states over all steps: the step is run once on symbols, then its states are solved ring by ring.

Everything that does not depend on a state is computed for all rows and steps at once, while the symbols are made. Then the
rings of states are taken in order, those read first. A state that does not read itself is computed for all steps (a map);
one whose update has the form of `front.matrices` is a scan. What a later ring reads of it is computed when it is needed.

Axes: B batch, T time, N heads, D and E the sides of a state; B·T rows of the step that is run once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from anaphora.engine.backends.base import LayerRun, Result
from anaphora.engine.backends.matrix.written import Elements, Written, solved
from anaphora.engine.backends.reference import reverse_rows
from anaphora.engine.graph import CannotTrace
from anaphora.engine.matrices import Factor, Forms, NotAffine, read_of
from anaphora.engine.rings import Ring, ring_groups
from anaphora.engine.symbols import Call, Operand, old_state, operand, record
from anaphora.ops.matrix_scan.products import contract, outer_products_by


class Solver:
    """One layer in one direction. ``shapes``: of its states, as the step sees them.

    ``rings`` says what became of the states. A ring that is a loop stops it: `result` then raises CannotTrace.
    """

    def __init__(self, run: LayerRun, shapes: Sequence[tuple[int, ...]]):
        self.run, self.shapes = run, shapes
        x = run.steps[0]
        self.batch, self.time = x.shape[:2]
        self.live = _live(x, run.lengths)
        self.outputs: list[Operand] = self._step()
        self.forms = Forms(self.number)
        self.known: dict[int, Any] = {}  # numbers of calls, by identity
        self.old: dict[int, Tensor] = {}  # states before each step, (B·T, …), of those known as a whole
        self.scans: dict[int, Written] = {}
        self.last: dict[int, Tensor] = {}
        self.rings: list[Ring] = []

    def result(self) -> Result:
        """y ``(B, T, H)``, zero past each row's end, and the last states ``(B, numbers)``; raises CannotTrace."""
        self.solve()
        stuck = next((ring for ring in self.rings if ring.kind == "loop"), None)
        if stuck is not None:
            raise CannotTrace(stuck.reason)
        y = self._sequence(self.number(self.outputs[0]), 0)
        if self.live is not None:
            y = torch.where(self.live, y, y.new_zeros(()))
        lasts = [self.scans[i].last if i in self.scans else self.last[i] for i in range(len(self.outputs))]
        ends = tuple(v.to(s.dtype) for v, s in zip(lasts, self.run.initial, strict=True))
        return (reverse_rows(y, self.run.lengths) if self.run.reverse else y), ends

    def solve(self) -> None:
        """Take the rings in order; one that reads a loop is a loop too."""
        groups, reach = ring_groups([o.reads if isinstance(o, Call) else () for o in self.outputs])
        for group in groups:
            i = group[0]
            alone, own = len(group) == 1, i in reach[i]
            kind, form, reason = "loop", "", ""
            before = {ring.states for ring in self.rings if ring.kind == "loop"}
            if any(reach[i] & set(states) - set(group) for states in before):
                reason = "it reads a state that is a loop"
            elif not alone:
                reason = f"{' and '.join(f'{{{j}}}' for j in group)} read each other"
            else:
                try:
                    form = self._scan(i) if own else self._map(i)
                    kind = "scan" if own else "map"
                except NotAffine as found:
                    reason = str(found)
            self.rings.append(Ring(group, kind, reason, form))  # type: ignore[arg-type]

    # ------------------------------------------------------------------ the step
    def _step(self) -> list[Operand]:
        run = self.run
        x = run.steps[0]
        steps = tuple([self._real(s).flatten(0, 1) for s in run.steps])
        rows = tuple([r[:, None].expand(-1, self.time, -1).flatten(0, 1) for r in run.rows])
        count = self.batch * self.time
        states = tuple([old_state(i, (count, *shape), x) for i, shape in enumerate(self.shapes)])
        with outer_products_by(record):
            new = run.step(run.params or {}, steps, rows, states)
        return [operand(value) for value in new]

    def _real(self, value: Tensor) -> Tensor:
        """``(B, T, ·)`` in the order it is read; past a row's end its last real step, so that padding is never read."""
        lengths = self.run.lengths
        if self.run.reverse:
            value = reverse_rows(value, lengths)
        if lengths is None or self.live is None:
            return value
        time = torch.arange(self.time, device=value.device)
        last = (lengths.to(value.device) - 1).clamp(min=0)[:, None]
        index = torch.minimum(time, last)[..., None].expand_as(value)
        return torch.where(self.live[:, :1], value.gather(1, index), value.new_zeros(()))

    # ------------------------------------------------------------------ rings
    def _map(self, i: int) -> str:
        """A state that is a function of what is known: its value at all steps."""
        new = self._sequence(self.number(self.outputs[i]), i)  # (B, T, …)
        first = self.run.initial[i]
        self._keep(i, new)
        if self.run.lengths is None:
            self.last[i] = new[:, -1].flatten(1)
            return ""
        ends = self.run.lengths.to(new.device)
        at = (ends - 1).clamp(min=0)[:, None, None].expand(-1, 1, first.shape[1])
        self.last[i] = torch.where(ends[:, None] > 0, new.flatten(2).gather(1, at)[:, 0], first)
        return ""

    def _scan(self, i: int) -> str:
        """A state that reads itself: what its update is, in words."""
        update = self.forms.update(self.outputs[i], i)
        found = solved(update, i, self.shapes[i], (self.batch, self.time), self.run, self.live)
        if isinstance(found, Elements):
            self.last[i] = found.last
            self._keep(i, found.new.view(self.batch, self.time, *self.shapes[i]))
        else:
            self.scans[i] = found
        return found.form

    def _keep(self, i: int, new: Tensor) -> None:
        """A state whose value is known at all steps, ``(B, T, …)``."""
        first = self.run.initial[i].reshape(self.batch, *self.shapes[i])
        self.old[i] = torch.cat((first[:, None], new[:, :-1]), 1).flatten(0, 1)
        if isinstance(self.outputs[i], Call):
            self.known[id(self.outputs[i])] = new.flatten(0, 1)

    def _sequence(self, value: Factor, i: int) -> Tensor:
        """The numbers of an expression that is state i, ``(B, T, …)``."""
        x = self.run.steps[0]
        made = torch.as_tensor(value, dtype=x.dtype, device=x.device)
        whole = made.expand(self.batch * self.time, *self.shapes[i])
        return whole.reshape(self.batch, self.time, *self.shapes[i])

    # ------------------------------------------------------------------ numbers
    def number(self, value: Operand) -> Factor:
        """The numbers of an expression for all rows and steps; raises NotAffine where a matrix is not stored as a whole."""
        if not isinstance(value, Call):
            return value
        if id(value) not in self.known:
            self.known[id(value)] = self._number(value)
        found: Factor = self.known[id(value)]
        return found

    def _number(self, call: Call) -> Any:
        if call.function is None:
            if call.state not in self.old:
                raise NotAffine(f"{{{call.state}}} is read as a whole; read it by contract")
            return self.old[call.state]
        if call.function is contract and isinstance(call.args[1], Call):
            chunked = [i for i in call.args[1].reads if i in self.scans]
            if len(chunked) == 1:
                return self._read(call, chunked[0])

        def numbers(value: Any) -> Any:
            return self.number(value) if isinstance(value, Call) else value

        found = call.function(*tree_map(numbers, list(call.args)), **tree_map(numbers, dict(call.kwargs)))
        return found if call.part is None else found[call.part]

    def _read(self, call: Call, i: int) -> Tensor:
        """What `contract` reads of a matrix that is a function of state i, ``(B·T, …, E)``."""
        query, matrix = call.args
        q, scan = self.number(query), self.scans[i]
        assert isinstance(q, Tensor)
        if matrix is self.outputs[i]:
            return scan.read(q)
        read = read_of(q, self.forms.update(matrix, i), i)
        total: Factor = 0 if read.c is None else read.c
        return total + (0 if read.a is None else scan.read_before(read.a))  # type: ignore[return-value]


def _live(x: Tensor, lengths: Tensor | None) -> Tensor | None:
    """Which steps are real, ``(B, T, 1)``; None when all are."""
    if lengths is None:
        return None
    return (torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None]).unsqueeze(-1)
