"""Cells with matrix-valued states: all steps at once, the states between chunks of steps one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from anaphora.engine.backends import reference
from anaphora.engine.backends.base import BackendName, Case, Job, LayerRun, Params, Result, States
from anaphora.engine.backends.reference import reverse_rows
from anaphora.engine.graph import CannotTrace
from anaphora.engine.matrices import (
    Call,
    Factor,
    Forms,
    NoDraws,
    NotAffine,
    Operand,
    Pair,
    Update,
    old_state,
    operand,
    read_of,
    record,
)
from anaphora.engine.rings import Ring, ring_groups
from anaphora.ops.matrix_scan.scan import contract, outer, outer_products_by, signed_scan

# ---------------------------------------------------------------------- the entry of the matrix backend
name: BackendName = "matrix"
about = "the step once for all steps; matrix-valued states by a scan"
planned = False
FEW = 5  # steps: below, running the step on symbols takes longer than the loop (measured on a CPU, forward and backward)


def why_not(case: Case) -> str | None:
    """Why a cell is not run by its matrices; None when it is."""
    if case.barred is not None:
        return case.barred
    if not case.matrix_rings:
        return case.no_plan if case.plan is None and case.no_plan else "all its states are vectors"
    if any(ring.kind == "loop" for ring in case.matrix_rings):
        return "a state is a loop over time"
    return f"fewer than {FEW} steps are faster one after the other" if case.time < FEW else None


def run(job: Job) -> Result:
    """Run all steps at once."""
    given = job.run
    try:
        return Solver(given, shapes_of(given)).result()
    except CannotTrace:  # with other numbers than the example's, the step does other things
        return reference.run(job)


def shapes_of(run: LayerRun) -> tuple[tuple[int, ...], ...]:
    """The shapes of a step's states; empty where all are vectors."""
    found: tuple[tuple[int, ...], ...] = getattr(run.step, "shapes", ())
    return found


def classify(run: LayerRun) -> tuple[Ring, ...]:
    """The rings of a step with matrix-valued states, found on a few rows like those of ``run``; raises CannotTrace."""
    shapes = shapes_of(run)

    def small(width: int, *before: int) -> torch.Tensor:
        # No random numbers: this must not change what the model draws next.
        count = width * torch.Size(before).numel()
        return torch.linspace(0.1, 0.6, count, dtype=like.dtype, device=like.device).view(*before, width)

    like = run.steps[0]
    with torch.inference_mode(False), torch.no_grad(), torch._C._DisableAutocast():
        example = run._replace(
            params={name: p.detach() for name, p in (run.params or {}).items()},
            steps=tuple([small(s.shape[-1], 3, 2) for s in run.steps]),
            rows=tuple([small(r.shape[-1], 3) for r in run.rows]),
            initial=tuple([small(s.shape[-1], 3) for s in run.initial]),
            lengths=None,
        )
        with NoDraws():  # type: ignore[no-untyped-call]
            solver = Solver(example, shapes)
        solver.solve()
    return tuple(solver.rings)


# ----------------------------------------------------------------------
# A cell with matrix-valued states over all steps: the step is run once on symbols, then its states are solved ring by ring.
#
# Everything that does not depend on a state is computed for all rows and steps at once, while the symbols are made. Then the
# rings of states are taken in order, those read first. A state that does not read itself is computed for all steps (a map);
# one whose update has the form of `front.matrices` is a scan. What a later ring reads of it is computed when it is needed.
#
# Axes: B batch, T time, N heads, D and E the sides of a state; B·T rows of the step that is run once.
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


# ----------------------------------------------------------------------
# A matrix-valued state whose update is known, over all steps: what is written to it, and reads of it.
#
# Axes: B batch, T time, N heads, D and E the sides of a state.
Sizes = tuple[int, int]  # B, T


@dataclass
class Elements:
    """A state each of whose numbers is a recurrence of its own, stored at all steps."""

    new: Tensor  # (B, T, numbers)
    last: Tensor  # (B, numbers)
    form: str


class Written:
    """A state that is only ever written to and read by vectors, and stored nowhere but at the end.

    S_t = diag(w_t) S_{t−1} + b_t (a_tᵀ S_{t−1}) + Σ k_t v_tᵀ; ``writes``: the k ``(B, T, N, D)`` and v ``(B, T, N, E)``.
    """

    def __init__(
        self,
        w: Tensor,
        writes: list[Pair],
        reads: Pair | None,
        first: Tensor,
        shape: tuple[int, ...],
        form: str,
    ):
        self.w, self.writes, self.reads = w, writes, reads
        self.first, self.shape, self.form = first, shape, form
        self._last: Tensor | None = None

    @property
    def last(self) -> Tensor:
        """The state after the last step, ``(B, numbers)``."""
        if self._last is None:
            self._scan(torch.zeros_like(self.writes[0][0]))
        assert self._last is not None
        return self._last

    def read(self, q: Tensor) -> Tensor:
        """S_tᵀ q_t for q ``(B·T, …, D)``: ``(B·T, …, E)``."""
        return self._flat(self._scan(self._by_step(q)))

    def read_before(self, a: Tensor) -> Tensor:
        """S_{t−1}ᵀ a_t for a ``(B·T, …, D)``: ``(B·T, …, E)``."""
        a = self._by_step(a)
        # The state before a step is the one after the step before it.
        later = torch.cat((a[:, 1:], torch.zeros_like(a[:, :1])), 1)
        y = self._scan(later)
        now = (a[:, 0, :, None].to(self.first.dtype) @ self.first).squeeze(2)  # (B, N, E)
        return self._flat(torch.cat((now[:, None].to(y.dtype), y[:, :-1]), 1))

    def _scan(self, r: Tensor) -> Tensor:
        count = len(self.writes)
        if count == 1:
            (k, v), w = self.writes[0], self.w
            b, a = self.reads or (None, None)
        else:  # the writes of a step become steps of their own; only the first decays and reads
            k, v = (self._woven([pair[side] for pair in self.writes]) for side in (0, 1))
            w = self._woven([self.w, *[torch.ones_like(self.w)] * (count - 1)])
            b, a = ((None if x is None else self._first_of(x)) for x in self.reads or (None, None))
            r = self._woven([*[torch.zeros_like(r)] * (count - 1), r])
        y, last = signed_scan(r, k, v, w, a, b, self.first)
        self._last = last.flatten(1)
        return y[:, count - 1 :: count]

    @cached_property
    def _sizes(self) -> Sizes:
        return self.w.shape[0], self.w.shape[1]

    def _woven(self, parts: list[Tensor]) -> Tensor:
        return torch.stack(parts, 2).flatten(1, 2)

    def _first_of(self, x: Tensor) -> Tensor:
        return self._woven([x, *[torch.zeros_like(x)] * (len(self.writes) - 1)])

    def _by_step(self, x: Tensor) -> Tensor:
        return _steps(x, self.shape[:-1], self._sizes)

    def _flat(self, y: Tensor) -> Tensor:
        """``(B, T, N, E)`` as the step has it."""
        return y.reshape(-1, *self.shape[:-2], self.shape[-1])


def solved(
    update: Update, state: int, shape: tuple[int, ...], sizes: Sizes, run: LayerRun, live: Tensor | None
) -> Written | Elements:
    """A state with this update; raises NotAffine where there is no scan for it."""
    by_column = isinstance(update.scale, Tensor) and update.scale.dim() > 0 and update.scale.shape[-1] != 1
    idle = not update.writes and not update.reads
    if len(shape) < 2 or by_column or update.rest is not None or idle:
        return _elements(update, state, shape, sizes, run)
    reads = _one_pair(update.reads)
    if reads is None and update.reads:
        raise NotAffine(f"{{{state}}} is read in {len(update.reads)} directions by its own update")
    tall, wide = shape[:-1], (*shape[:-2], shape[-1])
    nothing = run.initial[state].new_zeros(1)
    pairs = _merged(update.writes) or [(nothing, nothing)]
    writes = [(_steps(k, tall, sizes), _steps(v, wide, sizes)) for k, v in pairs]
    both = None if reads is None else (_steps(reads[0], tall, sizes), _steps(reads[1], tall, sizes))
    scale = _numbers(update.scale, writes[0][0])
    by_head = scale.dim() < 2 or scale.shape[-2] == 1
    if by_head:
        heads = shape[:-2]
        scale = scale.reshape(1) if scale.dim() < 2 else scale[..., 0, 0]
        w = scale.expand(sizes[0] * sizes[1], *heads).reshape(*sizes, prod(heads))
    else:
        w = _steps(scale[..., 0], tall, sizes)
    if live is not None:  # past a row's end its state neither decays nor is written to
        w = torch.where(live if by_head else live[..., None], w, w.new_ones(()))
        writes = [(_while(live, k), _while(live, v)) for k, v in writes]
        both = None if both is None else (_while(live, both[0]), _while(live, both[1]))
    first = run.initial[state].reshape(sizes[0], -1, *shape[-2:])
    form = "matrix" if both is None else "matrix, delta rule"
    if update.scale is None or isinstance(update.scale, Tensor) or update.scale != 1:
        form += ", decay by head" if by_head else ", decay by key channel"
    return Written(w, writes, both, first, shape, form)


def _steps(x: Tensor, shape: tuple[int, ...], sizes: Sizes) -> Tensor:
    """``(B·T, …, n)``, or what is broadcast to it, as ``(B, T, N, n)``."""
    return x.expand(sizes[0] * sizes[1], *shape).reshape(*sizes, prod(shape[:-1]), shape[-1])


def _numbers(value: Factor | None, like: Tensor) -> Tensor:
    """A factor as a tensor; zero for none."""
    return torch.as_tensor(0 if value is None else value, dtype=like.dtype, device=like.device)


def _while(live: Tensor, x: Tensor) -> Tensor:
    return torch.where(live[..., None], x, x.new_zeros(()))


def _merged(pairs: list[Pair]) -> list[Pair]:
    """Pairs that share a factor as one."""
    found: list[Pair] = []
    for one, other in pairs:
        for at, (left, right) in enumerate(found):
            if left is one or right is other:
                found[at] = (left, right + other) if left is one else (left + one, right)
                break
        else:
            found.append((one, other))
    return found


def _one_pair(pairs: list[Pair]) -> Pair | None:
    merged = _merged(pairs)
    return merged[0] if len(merged) == 1 else None


# ---------------------------------------------------------------------- number by number
def _elements(update: Update, state: int, shape: tuple[int, ...], sizes: Sizes, run: LayerRun) -> Elements:
    """s_t = w_t ∘ s_{t−1} + u_t for every number of a state."""
    if update.reads:
        raise NotAffine(
            f"{{{state}}} decays by column, or is added to as a whole, while its update reads it; use outer"
        )
    like, count = run.initial[state], prod(shape)
    w, u = _numbers(update.scale, like), _numbers(update.rest, like)
    for k, v in update.writes:
        u = u + outer(k, v)
    rows = sizes[0] * sizes[1]
    parts = [x.expand(rows, *shape).reshape(*sizes, count) for x in (w, u)]
    new, last = _diagonal(torch.cat(parts, -1), like, run.lengths)
    return Elements(new, last, "diagonal")


def _affine(params: Params, steps: States, rows: States, states: States) -> States:
    w, u = steps[0].chunk(2, -1)
    return (w * states[0] + u,)


_engines: list[Any] = []  # one, with the programs compiled so far


def _diagonal(both: Tensor, first: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """w and u ``(B, T, 2·numbers)``: the states ``(B, T, numbers)`` and the last, by the engine's own scan."""
    from anaphora.engine import dispatch  # which chooses among backends, this one too
    from anaphora.engine.prepare import Engine

    if not _engines:
        _engines.append(Engine(_affine, "affine"))
    run = LayerRun(_affine, {}, (both,), (), (first,), lengths)
    new, (last,) = dispatch.run_layer(_engines[0], run)
    return new, last
