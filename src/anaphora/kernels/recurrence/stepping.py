"""One step at a time, for streaming and decoding: weights stay packed between calls, and a call does little else."""

from __future__ import annotations

import ctypes
from threading import get_ident
from typing import TypeAlias

import torch
from torch import Tensor

from anaphora.kernels.recurrence.compiled import CompiledPlan
from anaphora.kernels.recurrence.reference import States
from anaphora.kernels.recurrence.trace import Trace

CHANGED = 2  # what a step returns when the packed weights are no longer the parameters
_THREADED = 1 << 23  # multiplications below which one thread is faster than starting others

_Pointers: TypeAlias = "tuple[ctypes.Array[ctypes.c_void_p], tuple[object, ...], list[Tensor]]"
_Table: TypeAlias = "tuple[Tensor, int, ctypes.Array[ctypes.c_longlong]]"  # rows, where they lie, sizes


class Stepper:
    """Runs single steps of a compiled plan without gradients.

    The packed weights are made anew whenever a parameter has changed: its version counter says so, and since a
    write through ``.data`` does not count, some elements are compared with the packed ones at every call.
    """

    def __init__(self, trace: Trace, compiled: CompiledPlan, names: list[str]):
        self.trace, self.compiled, self.names, plan = trace, compiled, names, compiled.plan
        # Only a parameter used as it is can be compared with its packed form; anything else is made at each call.
        used = [k for k, _, _ in trace.matrices] + [k for k, _ in trace.vectors]
        self.plain = all(trace.preparations[k.index].name is not None for k in used)
        self.work = sum(m.out * m.width for m in plan.matrices)
        arrays = compiled.program.arrays["forward"]
        self.index = {name: 3 + i for i, name in enumerate(arrays)}
        count = range(len(plan.state_widths))
        self.places = [(self.index[f"init{i}"], self.index[f"last{i}"]) for i in count]
        self.x_place, self.y_place = self.index["step0"], self.index["y"]
        self.function = compiled.functions["step"]
        self.stamp: list[tuple[int, int]] = []
        self.tables: dict[int, _Table] = {}
        # Pointers, what to compare, and the tensors both point to: replaced together, never changed.
        self.ready: tuple[list[int], tuple[object, ...], list[Tensor]] = ([], (), [])
        self.by_thread: dict[int, _Pointers] = {}

    def __call__(self, params: list[Tensor], x: int, batch: int, old: list[int], new: list[int]) -> None:
        """Addresses of x ``(B, inputs)`` and of each state ``(B, H)`` before and after the step.

        ``params``: the function's parameters in the order of ``names``.
        """
        stamp = [(p._version, p.data_ptr()) for p in params]
        if stamp != self.stamp or not self.plain:
            self._refresh(params, stamp)
        # A call lets other threads run, so each has its own pointers, with what they point to.
        mine = self.by_thread.get(get_ident()) or self._own_pointers()
        table = self.tables.get(batch) or self._make_table(batch)
        _, rows, numbers = table
        p, samples, _ = mine
        p[0], p[1] = rows, rows + batch * 8
        p[self.x_place] = x
        p[self.y_place] = new[0]
        for i, (before, after) in enumerate(self.places):
            p[before], p[after] = old[i], new[i]
        failed = self.function(numbers, p, *samples)
        if failed == CHANGED:
            self.stamp = []
            self(params, x, batch, old, new)
        elif failed:
            raise MemoryError("a step ran out of memory")

    def _own_pointers(self) -> _Pointers:
        if len(self.by_thread) > 64:
            self.by_thread.clear()
        template, samples, held = self.ready
        pointers = (ctypes.c_void_p * len(template))(*template)
        self.by_thread[get_ident()] = mine = (pointers, samples, held)
        return mine

    def _make_table(self, batch: int) -> _Table:
        if len(self.tables) > 64:
            self.tables.clear()
        rows = torch.stack((torch.arange(batch), torch.ones(batch, dtype=torch.int64)))
        threads = 1 if batch * self.work < _THREADED else min(torch.get_num_threads(), -(-batch // 8))
        sizes = self.compiled.program.sizes
        numbers = (ctypes.c_longlong * (4 + len(sizes)))(1, batch, 0, max(1, threads), *sizes)
        self.tables[batch] = (rows, rows.data_ptr(), numbers)
        return self.tables[batch]

    def _refresh(self, params: list[Tensor], stamp: list[tuple[int, int]]) -> None:
        matrices, vectors = self.trace.boundary(dict(zip(self.names, params, strict=True)))
        stacked = [
            torch.cat([matrices[k] for k in m.parts]) if len(m.parts) > 1 else matrices[m.parts[0]]
            for m in self.compiled.plan.matrices
        ]
        self.compiled.check([*stacked, *vectors], stacked, vectors)
        packed = [self.compiled.pack(w.detach()) for w in stacked]
        vectors = [v.detach().contiguous() for v in vectors]
        template = [0] * (3 + len(self.index))
        template[2] = self.compiled.constants.data_ptr()
        for name, tensors in (("m", packed), ("vector", vectors)):
            for i, tensor in enumerate(tensors):
                if f"{name}{i}" in self.index:
                    template[self.index[f"{name}{i}"]] = tensor.data_ptr()
        samples = self._choose_samples(matrices, packed)
        self.ready = (template, samples, [*matrices, *packed, *vectors])
        self.by_thread = {}
        self.stamp = stamp

    def _choose_samples(self, matrices: list[Tensor], packed: list[Tensor]) -> tuple[object, ...]:
        """Parameter and packed matrix, part by part, for the comparison."""
        numbers: list[int] = []
        places: list[int] = []
        for m, weights in zip(self.compiled.plan.matrices, packed, strict=True):
            start = 0
            for k in m.parts:
                part = matrices[k]
                numbers += [part.shape[0], part.shape[1], part.stride(0), part.stride(1), start]
                places += [part.data_ptr(), weights.data_ptr()]
                start += part.shape[0]
        count = len(places) // 2
        return (
            (ctypes.c_longlong * (1 + len(numbers)))(count, *numbers),
            (ctypes.c_void_p * max(1, len(places)))(*places),
        )


def run_steps(
    steppers: list[Stepper], params: list[list[Tensor]], x: Tensor, state: States
) -> tuple[Tensor, States]:
    """One step of layers that feed one another: x ``(B, inputs)``, each state ``(layers, B, H)``."""
    x = x.contiguous()
    state = tuple([s.contiguous() for s in state])
    new = tuple([torch.empty_like(s) for s in state])
    batch = x.size(0)
    value = x.data_ptr()
    old_at, new_at = [s.data_ptr() for s in state], [s.data_ptr() for s in new]
    if len(steppers) == 1:
        steppers[0](params[0], value, batch, old_at, new_at)
        return new[0].squeeze(0), new
    size = state[0].stride(0) * x.element_size()  # of one layer's part of a state
    for stepper, given in zip(steppers, params, strict=True):
        stepper(given, value, batch, old_at, new_at)
        value = new_at[0]
        old_at, new_at = [a + size for a in old_at], [a + size for a in new_at]
    return new[0][-1], new
