"""Single steps of a stack of cells by compiled code, for streaming and decoding.

A step of a small network takes a few microseconds, so all that Python does here is done once where it can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from threading import get_ident
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anaphora.engine.backends.base import States
from anaphora.engine.backends.c.compiled import FIRST, Packed, StepCall, Stepper
from anaphora.native.derived import Fingerprint, named_tensors
from anaphora.native.snapshot import Snapshot
from anaphora.nn.cell import Cell
from anaphora.nn.recurrent_run import engine_of, hidden_from
from anaphora.nn.recurrent_step import LayerStep

if TYPE_CHECKING:
    from anaphora.nn.recurrent_stepping import Stepping

place_of = Tensor.data_ptr
try:  # half the time of torch.empty: what code compiled by torch calls
    from torch._C._dynamo.guards import _empty_strided_cpu as empty_strided  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover

    def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(size, stride, dtype=dtype)


def fingerprint_of(layer: Stepping, content: Snapshot | None = None) -> Fingerprint:
    """All that a step of the layer depends on; ``content``: of the tensors whose values are copied."""
    return Fingerprint(layer, content=content)


class _Ready:
    """The calls of all layers for one shape of x, for one thread; the shapes of y and of a state; and the state it
    handed out last, which fits."""

    __slots__ = ("addresses", "calls", "last", "layer", "state", "strides", "x", "y")

    def __init__(self, x: torch.Size, state: tuple[int, int, int], calls: list[StepCall], layer: int):
        self.x, self.state, self.calls = x, state, calls
        _, batch, hidden = state
        self.y, self.strides = (batch, hidden), (batch * hidden, hidden, 1)  # strides of a state
        self.layer = layer  # bytes of one layer's part of a state
        self.last: States = ()
        self.addresses: list[int] = []


class Stream:
    """The compiled steps of a layer's cells, each feeding the next.

    It serves as long as the layer's fingerprint is the same and the packed parameters are unwritten; then another one has
    to be made. Threads may share it.
    """

    def __init__(self, layer: Stepping, x: Tensor, state: States):
        cells, keep = [cell for cell in layer.cells if isinstance(cell, Cell)], layer.zoneout
        self.dtype, self.inputs, self.hidden = x.dtype, cells[0].inputs, cells[0].hidden
        self.params: list[list[Tensor]] = []
        self.steppers: list[Stepper] = []
        served = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
        self.serves = served and self._find(cells, keep, x, state)
        self.states = len(cells[0].state)
        self.write = Struct(f"{2 + 2 * self.states}Q").pack_into
        self.threads: dict[int, _Ready] = {}  # what each thread used last
        self.known: dict[tuple[int, int], _Ready] = {}  # by thread and number of rows
        self.packed: dict[bool, list[Packed]] = {}  # by whether it is for one row
        read = [s.reads(p) for s, p in zip(self.steppers, self.params, strict=True)] if self.serves else []
        self.plain = None not in read
        # The weights are packed later: no write can come between. What is not plain is made again for each step.
        content = Snapshot(t for found in read for t in found or ()) if self.plain else None
        self.fingerprint = fingerprint_of(layer, content)
        self.same = self.fingerprint.same

    def _find(self, cells: Sequence[Cell], keep: tuple[float, ...], x: Tensor, state: States) -> bool:
        for cell in cells:
            if hidden_from(cell) is not None:
                return False
            params = named_tensors(cell)
            if any(p.dtype != x.dtype or p.is_inference() for p in params.values()):
                return False
            step = LayerStep(cell, zoneout="mean" if any(keep) else "", keep=keep)
            stepper = engine_of(step).stepper(params, x, tuple(s[0] for s in state))
            if stepper is None:
                return False
            self.steppers.append(stepper)
            self.params.append(list(params.values()))
            x = state[0][0]
        return True

    def current(self, x: Tensor) -> bool:
        """Whether this stream still belongs to the layer it was made for, and serves this kind of input."""
        if x.dtype is not self.dtype or (self.serves and not x.is_cpu):
            return False
        return self.fingerprint.unchanged()

    def run(self, x: Tensor, state: States) -> tuple[Tensor, States] | None:
        """One step: x ``(B, inputs)``, each state ``(layers, B, hidden)``; None where this stream does not serve."""
        if not self.serves or x.dtype is not self.dtype or not x.is_cpu:
            return None
        try:
            if not self.same() and not self.fingerprint.unchanged():
                return None
        except KeyError:  # a part is gone
            return None
        ready = self.threads.get(get_ident())
        if ready is None or x.shape != ready.x or not self.plain:
            if x.dim() != 2 or x.shape[1] != self.inputs:
                return None
            ready = self._make_ready(x)
        old = [*map(place_of, state)]
        if state is not ready.last or old != ready.addresses:
            if not self._fits(state, ready.state):
                return None
            state = tuple([s.contiguous() for s in state])
            old = [*map(place_of, state)]
        if not x.is_contiguous():
            x = x.contiguous()
        shape, strides, dtype = ready.state, ready.strides, self.dtype
        ready.last = new = tuple([empty_strided(shape, strides, dtype) for _ in state])
        y = empty_strided(ready.y, strides[1:], dtype)  # a view of the new state would take longer
        ready.addresses = after = [*map(place_of, new)]
        given = (x.data_ptr(), *old, *after, y.data_ptr())
        for function, block, _ in ready.calls:
            self.write(block, 8 * FIRST, *given)
            if function(block):
                raise MemoryError("a step ran out of memory")
            if ready.layer:
                below = given[1 + self.states]  # the first new state of this layer
                given = (below, *[address + ready.layer for address in given[1:-1]], given[-1])
        return y, new

    def _make_ready(self, x: Tensor) -> _Ready:
        thread, (batch, _), threads, known = get_ident(), x.shape, self.threads, self.known
        ready = known.get((thread, batch)) if self.plain else None
        if ready is None:
            each = zip(self.steppers, self._packed(batch == 1), strict=True)
            calls = [stepper.call(packed, batch) for stepper, packed in each]
            size = batch * self.hidden * x.element_size() if len(calls) > 1 else 0
            ready = _Ready(x.shape, (len(calls), batch, self.hidden), calls, size)
            if len(known) > 64:
                known.clear()
            known[thread, batch] = ready
        if len(threads) > 64:
            threads.clear()
        threads[thread] = ready
        return ready

    def _packed(self, alone: bool) -> list[Packed]:
        """The weights of all layers; what torch makes of parameters is made again for every step."""
        found = self.packed.get(alone) if self.plain else None
        if found is None:
            each = zip(self.steppers, self.params, strict=True)
            self.packed[alone] = found = [stepper.pack(params, alone) for stepper, params in each]
        return found

    def _fits(self, state: States, shape: tuple[int, int, int]) -> bool:
        if len(state) != self.states:
            return False
        return all(s.shape == shape and s.dtype is self.dtype and s.is_cpu for s in state)
