"""Single steps of a stack of cells by compiled code, for streaming and decoding.

A step of a small network takes a few microseconds, so all that Python does here is done once where it can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anaphora.kernels.recurrence.backends.base import States
from anaphora.kernels.recurrence.backends.c.stepping import CHANGED, FIRST, StepCall, Stepper
from anaphora.nn.cell import Cell
from anaphora.nn.recurrent_run import engine_of, transformed
from anaphora.nn.recurrent_step import LayerStep

address_of, empty_like = Tensor.data_ptr, torch.empty_like


class _Watched(NamedTuple):
    """A parameter in its place: the same object, unwritten since, means the same weights."""

    held: dict[str, Any]
    name: str
    value: Tensor
    version: int
    address: int


class _Ready:
    """The calls of all layers for one shape of x, for one thread; a y to make others like; and the state it handed
    out last, which fits."""

    __slots__ = ("addresses", "calls", "last", "layer", "state", "x", "y")

    def __init__(self, x: torch.Size, y: Tensor, state: torch.Size, calls: list[StepCall], layer: int):
        self.x, self.y, self.state, self.calls = x, y, state, calls
        self.layer = layer  # bytes of one layer's part of a state
        self.last: States = ()
        self.addresses: list[int] = []


class Stream:
    """The compiled steps of the cells of a stack, each feeding the next; ``keep``: zoneout's rates.

    It serves as long as the cells' parameters are the same objects.
    """

    def __init__(self, cells: Sequence[Cell], keep: tuple[float, ...], x: Tensor, state: States):
        self.dtype, self.inputs, self.hidden = x.dtype, cells[0].inputs, cells[0].hidden
        self.slots: list[tuple[dict[str, Any], str, Any]] = []
        self.params: list[list[Tensor]] = []
        self.steppers: list[Stepper] = []
        for cell in cells:
            for module in cell.modules():
                for held in (module._parameters, module._buffers):
                    self.slots += [(held, name, value) for name, value in held.items()]
        served = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
        self.serves = served and self._find(cells, keep, x, state)
        self.plain = all(stepper.plain for stepper in self.steppers)
        self.states = len(cells[0].state)
        self.write = Struct(f"{2 + 2 * self.states}Q").pack_into
        self.watched: list[_Watched] = []
        self.threads: dict[int, _Ready] = {}  # what each thread used last
        self.known: dict[tuple[int, int], _Ready] = {}  # by thread and number of rows
        self._watch()

    def _find(self, cells: Sequence[Cell], keep: tuple[float, ...], x: Tensor, state: States) -> bool:
        for cell in cells:
            params = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
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
        """Whether this stream still belongs to the cells it was made for, and serves this kind of input."""
        if x.dtype is not self.dtype or (self.serves and not x.is_cpu):
            return False
        return all(held.get(name) is value for held, name, value in self.slots)

    def run(self, x: Tensor, state: States) -> tuple[Tensor, States] | None:
        """One step: x ``(B, inputs)``, each state ``(layers, B, hidden)``; None where this stream does not serve."""
        if not self.serves or x.dtype is not self.dtype or not x.is_cpu or transformed():
            return None
        for held, name, value, version, address in self.watched:
            if held.get(name) is not value:
                return None
            if value._version != version or value.data_ptr() != address:
                self._watch()
                break
        if not self.plain:
            self._watch()
        ready = self.threads.get(get_ident())
        if ready is None or x.shape != ready.x:
            if x.dim() != 2 or x.shape[1] != self.inputs:
                return None
            ready = self._make_ready(x)
        old = [*map(address_of, state)]
        if state is not ready.last or old != ready.addresses:
            if not self._fits(state, ready.state):
                return None
            state = tuple([s.contiguous() for s in state])
            old = [*map(address_of, state)]
        if not x.is_contiguous():
            x = x.contiguous()
        ready.last = new = tuple(map(empty_like, state))
        y = empty_like(ready.y)  # a view of the new state would take longer
        ready.addresses = after = [*map(address_of, new)]
        given = (x.data_ptr(), *old, *after, y.data_ptr())
        for function, block, _ in ready.calls:
            self.write(block, 8 * FIRST, *given)
            failed = function(block)
            if failed:
                if failed != CHANGED:
                    raise MemoryError("a step ran out of memory")
                self._watch()
                return self.run(x, state)
            if ready.layer:
                below = given[1 + self.states]  # the first new state of this layer
                given = (below, *[address + ready.layer for address in given[1:-1]], given[-1])
        return y, new

    def _watch(self) -> None:
        """Pack the weights anew at the next step, and look out for changes from now on."""
        # In this order: weights packed meanwhile by another thread are then newer than what is looked out for.
        tensors = [slot for slot in self.slots if slot[2] is not None] if self.serves else []
        self.watched = [_Watched(h, n, v, v._version, v.data_ptr()) for h, n, v in tensors]
        for stepper in self.steppers:
            stepper.forget()
        self.threads, self.known = {}, {}

    def _make_ready(self, x: Tensor) -> _Ready:
        thread, (batch, _), threads = get_ident(), x.shape, self.threads
        known = self.known
        ready = known.get((thread, batch))
        if ready is None:
            calls = [s.call(p, batch) for s, p in zip(self.steppers, self.params, strict=True)]
            size = batch * self.hidden * x.element_size() if len(calls) > 1 else 0
            y, state = x.new_empty(batch, self.hidden), torch.Size((len(calls), batch, self.hidden))
            ready = _Ready(x.shape, y, state, calls, size)
            if len(known) > 64:
                known.clear()
            known[thread, batch] = ready
        if len(threads) > 64:
            threads.clear()
        threads[thread] = ready
        return ready

    def _fits(self, state: States, shape: torch.Size) -> bool:
        if len(state) != self.states:
            return False
        return all(s.shape == shape and s.dtype is self.dtype and s.is_cpu for s in state)
