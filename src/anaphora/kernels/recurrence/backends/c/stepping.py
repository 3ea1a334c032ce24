"""One step at a time, for streaming and decoding: weights stay packed between calls, and a call does little else."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from anaphora.kernels.recurrence.backends.c.compiled import CompiledPlan
from anaphora.kernels.recurrence.front.trace import Trace

CHANGED = 2  # what a step returns when the packed weights are no longer the parameters
FIRST = 5  # where in a call's block the addresses of x, the states and y begin
_THREADED = 1 << 23  # multiplications below which one thread is faster than starting others

_Numbers: TypeAlias = "ctypes.Array[ctypes.c_longlong]"
_Places: TypeAlias = "ctypes.Array[ctypes.c_void_p]"


class StepCall(NamedTuple):
    """A call made ready: ``function(block)`` runs a step once the addresses of x, of each state before and after, and
    of y (the first state after) stand in the block from ``FIRST`` on. One thread may use it at a time."""

    function: ctypes._NamedFuncPointer
    block: ctypes.Array[ctypes.c_uint64]
    held: tuple[object, ...]  # what the block points to


class _Packed(NamedTuple):
    """The parameters as the program reads them. All of it is replaced together, never changed."""

    template: list[int]  # the program's pointers
    numbers: _Numbers  # what to compare with the parameters
    places: _Places
    tensors: list[Tensor]


class Stepper:
    """Makes ready single steps of a compiled plan without gradients.

    Whoever calls must call :meth:`forget` when a parameter has changed. A write through ``.data`` cannot be noticed
    outside, so a step compares some elements with the packed ones and returns ``CHANGED`` if they differ.
    """

    def __init__(self, trace: Trace, compiled: CompiledPlan, names: list[str]):
        self.trace, self.compiled, self.names, plan = trace, compiled, names, compiled.plan
        # Only a parameter used as it is can be compared with its packed form; anything else is made at each call.
        used = [k for k, _, _ in trace.matrices] + [k for k, _ in trace.vectors]
        self.plain = all(trace.preparations[k.index].name is not None for k in used)
        self.work = sum(m.out * m.width for m in plan.matrices)
        self.index = {name: 3 + i for i, name in enumerate(compiled.program.arrays["forward"])}
        count = range(len(plan.state_widths))
        wanted = ["step0", *(f"init{i}" for i in count), *(f"last{i}" for i in count), "y"]
        self.targets = (ctypes.c_longlong * (1 + len(wanted)))(
            len(wanted), *(self.index[name] for name in wanted)
        )
        self.packed: dict[bool, _Packed] = {}

    def forget(self) -> None:
        """The parameters have changed."""
        self.packed = {}

    def call(self, params: list[Tensor], batch: int) -> StepCall:
        """A call for ``batch`` rows; ``params``: the function's parameters in the order of ``names``."""
        alone = batch == 1
        packed = self.packed.get(alone)
        if packed is None:
            self.packed[alone] = packed = self._pack(params, alone)
        rows = torch.stack((torch.arange(batch), torch.ones(batch, dtype=torch.int64)))
        threads = 1 if batch * self.work < _THREADED else min(torch.get_num_threads(), -(-batch // 8))
        sizes = self.compiled.program.sizes
        numbers = (ctypes.c_longlong * (4 + len(sizes)))(1, batch, 0, max(1, threads), *sizes)
        pointers = (ctypes.c_void_p * len(packed.template))(*packed.template)
        pointers[0], pointers[1] = rows.data_ptr(), rows.data_ptr() + 8 * batch
        parts = (numbers, pointers, packed.numbers, packed.places, self.targets)
        block = (ctypes.c_uint64 * (FIRST + self.targets[0]))(*(ctypes.addressof(part) for part in parts))
        function = self.compiled.functions["step_row" if alone else "step"]
        return StepCall(function, block, (rows, packed.tensors, *parts))

    def _pack(self, params: list[Tensor], alone: bool) -> _Packed:
        matrices, vectors = self.trace.boundary(dict(zip(self.names, params, strict=True)))
        stacked = [
            torch.cat([matrices[k] for k in m.parts]) if len(m.parts) > 1 else matrices[m.parts[0]]
            for m in self.compiled.plan.matrices
        ]
        self.compiled.check([*stacked, *vectors], stacked, vectors)
        packed = [self.compiled.pack(w.detach(), row=alone) for w in stacked]
        vectors = [v.detach().contiguous() for v in vectors]
        template = [0] * (3 + len(self.index))
        template[2] = self.compiled.constants.data_ptr()
        for name, tensors in (("m", packed), ("vector", vectors)):
            for i, tensor in enumerate(tensors):
                if f"{name}{i}" in self.index:
                    template[self.index[f"{name}{i}"]] = tensor.data_ptr()
        return _Packed(template, *self._samples(matrices, packed), [*matrices, *packed, *vectors])

    def _samples(self, matrices: list[Tensor], packed: list[Tensor]) -> tuple[_Numbers, _Places]:
        """Parameter and packed matrix, part by part, for the comparison."""
        numbers: list[int] = []
        places: list[int] = []
        for m, weights in zip(self.compiled.plan.matrices, packed, strict=True):
            start = 0
            for k in m.parts:
                part = matrices[k]
                numbers += [*part.shape, *part.stride(), start, m.out]
                places += [part.data_ptr(), weights.data_ptr()]
                start += part.shape[0]
        count = len(places) // 2
        return (
            (ctypes.c_longlong * (1 + len(numbers)))(count, *numbers),
            (ctypes.c_void_p * max(1, len(places)))(*places),
        )
