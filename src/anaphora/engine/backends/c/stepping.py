"""One step at a time, for streaming and decoding: weights stay packed between calls, and a call does little else."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.engine.backends.c.compiled import CompiledPlan
from anaphora.engine.trace import Trace
from anaphora.native.c import address_of

FIRST = 3  # where in a call's block the addresses of x, the states and y begin
_THREADED = 1 << 23  # multiplications below which one thread is faster than starting others


class StepCall(NamedTuple):
    """A call made ready: ``function(block)`` runs a step once the addresses of x, of each state before and after, and
    of y (the first state after) stand in the block from ``FIRST`` on. One thread may use it at a time."""

    function: ctypes._NamedFuncPointer
    block: ctypes.Array[ctypes.c_uint64]
    held: tuple[object, ...]  # what the block points to


class Packed(NamedTuple):
    """The parameters as the program reads them: matrices packed, vectors in place or copied."""

    template: list[int]  # the program's pointers
    tensors: list[Tensor]  # those made here, which the pointers point to


class Stepper:
    """Makes ready single steps of a compiled plan without gradients. It keeps no weights: the caller keeps what `pack`
    returns as long as the parameters hold the same values in the same place."""

    def __init__(self, trace: Trace, compiled: CompiledPlan, names: list[str]):
        self.trace, self.compiled, self.names, plan = trace, compiled, names, compiled.plan
        self.work = sum(m.out * m.width for m in plan.matrices)
        self.index = {name: 3 + i for i, name in enumerate(compiled.program.arrays["forward"])}
        count = range(len(plan.state_widths))
        wanted = ["step0", *(f"init{i}" for i in count), *(f"last{i}" for i in count), "y"]
        self.targets = (ctypes.c_longlong * (1 + len(wanted)))(
            len(wanted), *(self.index[name] for name in wanted)
        )

    def reads(self, params: Sequence[Tensor]) -> list[Tensor] | None:
        """The parameters that `pack` reads: matrices are copied, and of vectors their places.

        None where it reads something else, which torch makes of the parameters: a product of two of them, one with gaps in
        memory made contiguous, or a tensor that is no parameter.
        """
        by_name = dict(zip(self.names, params, strict=True))
        known = [k for k, _, _ in self.trace.matrices] + [k for k, _ in self.trace.vectors]
        names = {self.trace.preparations[k.index].name for k in known}
        found = [by_name[name] for name in names if name is not None]
        return found if len(found) == len(names) and all(p.is_contiguous() for p in found) else None

    def pack(self, params: Sequence[Tensor], alone: bool) -> Packed:
        """``params``: the function's parameters in the order of ``names``; ``alone``: for one row at a time."""
        matrices, vectors = self.trace.boundary(dict(zip(self.names, params, strict=True)))
        stacked = [
            torch.cat([matrices[k] for k in m.parts]) if len(m.parts) > 1 else matrices[m.parts[0]]
            for m in self.compiled.plan.matrices
        ]
        self.compiled.check([*stacked, *vectors], stacked, vectors)
        made = {f"m{i}": self.compiled.pack(w.detach(), row=alone) for i, w in enumerate(stacked)}
        flat = {f"vector{i}": v.detach().contiguous() for i, v in enumerate(vectors)}
        template = [0] * (3 + len(self.index))
        template[2] = self.compiled.constants.data_ptr()
        for name, tensor in (made | flat).items():
            if name in self.index:
                template[self.index[name]] = address_of(tensor)
        # A view of a parameter would be one more reference to its memory: see `Snapshot`.
        own = {p.untyped_storage()._cdata for p in params}
        kept = [v for v in flat.values() if v.untyped_storage()._cdata not in own]
        return Packed(template, [*made.values(), *kept])

    def call(self, packed: Packed, batch: int) -> StepCall:
        """A call for ``batch`` rows; for one row the weights must have been packed for one."""
        rows = torch.stack((torch.arange(batch), torch.ones(batch, dtype=torch.int64)))
        threads = 1 if batch * self.work < _THREADED else min(torch.get_num_threads(), -(-batch // 8))
        sizes = self.compiled.program.sizes
        numbers = (ctypes.c_longlong * (4 + len(sizes)))(1, batch, 0, max(1, threads), *sizes)
        pointers = (ctypes.c_void_p * len(packed.template))(*packed.template)
        pointers[0], pointers[1] = rows.data_ptr(), rows.data_ptr() + 8 * batch
        parts = (numbers, pointers, self.targets)
        block = (ctypes.c_uint64 * (FIRST + self.targets[0]))(*(ctypes.addressof(part) for part in parts))
        function = getattr(self.compiled.steps, "step_row" if batch == 1 else "step")
        return StepCall(function, block, (rows, packed.tensors, *parts))
