"""Units and products on the CPU: calls of the generated C."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.engine.backends.c.compiled import real_rows
from anaphora.engine.backends.scan.source_c import UnitProgram, products_source, units_source
from anaphora.engine.backends.scan.walk import Direction, Given, Gradients
from anaphora.engine.plan import Plan
from anaphora.engine.units import Unit, cut_units
from anaphora.native.c import CLibrary, address_of

_PER_THREAD = 1 << 14  # numbers a thread should have to do at least
_BLOCK = 64  # columns that a thread takes at a time, at least


class CompiledUnits:
    """The units of a plan with their machine code; raises CannotWalk or CannotCompile."""

    def __init__(self, plan: Plan, double: bool):
        units = cut_units(plan)
        source, self.programs = units_source(units, double)
        self.dtype = torch.float64 if double else torch.float32
        no_memory = "a recurrence ran out of memory; use shorter or smaller batches"
        self.library = CLibrary("scan", lambda double: source, (self.dtype,), no_memory=no_memory)
        self.products = CLibrary(
            "scan",
            products_source,
            (self.dtype,),
            no_memory="a weight gradient ran out of memory",
            void=("pack",),
            counts=("packed_size",),
        )
        for library in (self.library, self.products):
            library.load(self.dtype)  # raises where it cannot be compiled
        self.number = {id(unit): k for k, unit in enumerate(units)}

    # ------------------------------------------------------------------ units
    def forward(
        self, unit: Unit, given: Given, how: Direction, keep: bool
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Exports, last states and what the backward pass reads of the states."""
        x, shape = given.flat()[0], (how.batch, how.time, unit.width)
        exports = [x.new_empty(shape) for _ in unit.exports]
        last = [torch.empty_like(s) for s in given.initial]
        own = {i: x.new_empty(shape) for i in unit.remembered if keep and unit.exported_as(i) is None}
        arrays = self._arrays(given)
        arrays |= {f"last{i}": s for i, s in enumerate(last)} | {
            f"export{e}": t for e, t in enumerate(exports)
        }
        arrays |= {f"kept{i}": t for i, t in own.items()}
        self._call(unit, "forward", given, how, arrays)
        return exports, last, unit.recalled(own, exports) if keep else []

    def backward(
        self,
        unit: Unit,
        given: Given,
        how: Direction,
        remembered: Sequence[Tensor],
        dexports: Sequence[Tensor | None],
        dlast: Sequence[Tensor | None],
    ) -> Gradients:
        """The gradients of what the unit was given."""
        x, batch = given.flat()[0], how.batch
        arrays = self._arrays(given)
        arrays |= {f"kept{i}": t for i, t in zip(unit.remembered, remembered, strict=True)}
        for name, group in (("dexport", dexports), ("dlast", dlast)):
            arrays |= {f"{name}{i}": None if g is None else g.contiguous() for i, g in enumerate(group)}
        dsequences = given.empty_gradients(unit)
        arrays |= {f"dsequence{s}": dsequences[given.places[s][0]] for s in unit.backward.steps}
        dvectors = {i: x.new_empty(batch, unit.width) for i in unit.backward.vectors}
        arrays |= {f"dvector{i}": t for i, t in dvectors.items()}
        dinitial = [torch.empty_like(s) for s in given.initial]
        arrays |= {f"dinit{i}": t for i, t in enumerate(dinitial)}
        arrays["nothing"] = x.new_zeros(unit.width)
        self._call(unit, "backward", given, how, arrays)
        summed = [
            dvectors[i].sum(0) if i in dvectors else torch.zeros_like(v) for i, v in enumerate(given.vectors)
        ]
        return Gradients(dsequences, summed, dinitial)

    def _arrays(self, given: Given) -> dict[str, Tensor | None]:
        arrays: dict[str, Tensor | None] = {
            f"sequence{s}": given.sequences[k] for s, (k, _) in enumerate(given.places)
        }
        for name, group in (("vector", given.vectors), ("row", given.rows), ("init", given.initial)):
            arrays |= {f"{name}{i}": t for i, t in enumerate(group)}
        return arrays

    def _call(
        self, unit: Unit, name: str, given: Given, how: Direction, arrays: dict[str, Tensor | None]
    ) -> None:
        k, batch, time, width = self.number[id(unit)], how.batch, how.time, unit.width
        lengths = torch.full((batch,), time) if how.lengths is None else how.lengths.to("cpu", torch.int64)
        if how.lengths is not None and batch and (int(lengths.min()) < 0 or int(lengths.max()) > time):
            raise ValueError(f"a recurrence needs {batch} lengths between 0 and its {time} steps.")
        lengths = lengths.contiguous()
        threads = max(1, min(torch.get_num_threads(), batch * time * width // _PER_THREAD))
        blocks = 1 if threads <= batch else -(-threads // batch)
        some = max(_BLOCK, -(-width // blocks // _BLOCK) * _BLOCK)
        numbers = [time, batch, int(how.reverse), threads, some, width]
        for sequence, start in given.places:
            numbers += [given.sequences[sequence].shape[-1], start]
        program: UnitProgram = self.programs[k]
        order = program.forward if name == "forward" else program.backward
        # Parameters among them are only read; what the program writes to was made for it.
        tensors = [
            address_of(tensor) if tensor is not None and array.startswith("vector") else tensor
            for array in order
            for tensor in (arrays.get(array),)
        ]
        self.library.call(self.dtype, f"{name}{k}", numbers, (lengths, *tensors))

    # ------------------------------------------------------------------ products
    def multiply(self, x: Tensor, matrix: Tensor, lengths: Tensor | None) -> Tensor:
        """x ``(B, T, K)`` times ``(N, K)`` transposed, with the bits of the ``c`` backend."""
        x = x.contiguous()
        (batch, time, inner), out = x.shape, matrix.shape[0]
        packed = self._packed(matrix)
        made = x.new_empty(batch, time, out)
        rows = real_rows(time, lengths)
        count = batch * time if rows is None else len(rows)
        threads = max(1, min(torch.get_num_threads(), count * out * inner >> 20))
        sizes = (count, out, inner, threads, inner, out)
        self.products.call(self.dtype, "multiply", sizes, (x, made, packed, rows))
        return made

    def _packed(self, matrix: Tensor) -> Tensor:
        matrix = matrix.detach().resolve_neg()
        packed = matrix.new_empty(self.products.count(self.dtype, "packed_size", *matrix.shape))
        sizes = (*matrix.shape, *matrix.stride())
        self.products.call(self.dtype, "pack", sizes, (address_of(matrix), packed))
        return packed

    def outer(self, g: Tensor, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Σ over rows and real steps of g ``(B, T, N)`` xᵀ ``(B, T, K)``: ``(N, K)``."""
        rows = real_rows(x.shape[1], lengths)
        a, b = g.contiguous().view(-1, g.shape[-1]), x.contiguous().view(-1, x.shape[-1])
        count = len(a) if rows is None else len(rows)
        made = a.new_empty(a.shape[1], b.shape[1])
        threads = max(1, min(torch.get_num_threads(), a.shape[1] // 128))
        sizes = (a.shape[1], b.shape[1], count, threads, a.stride(0), b.stride(0))
        self.products.call(self.dtype, "outer", sizes, (a, b, made, rows))
        return made
