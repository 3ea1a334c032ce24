"""Units and products on a GPU: launches of the generated Triton kernels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from anaphora.kernels import invariant
from anaphora.kernels.recurrence.backends.scan.source_triton import Program, generate
from anaphora.kernels.recurrence.backends.scan.triton_pass import GROUP
from anaphora.kernels.recurrence.backends.scan.walk import Direction, Given, Gradients, real_steps
from anaphora.kernels.recurrence.front.plan import Plan
from anaphora.kernels.recurrence.front.units import Unit, cut_units
from anaphora.kernels.recurrence.precision import recurrent_precision
from anaphora.kernels.toolchain.triton_module import load

COLUMNS = 64  # of a row that a program takes
FEWEST = 128  # programs below which time is cut into chunks
ENOUGH = 1024  # programs that fill a GPU
SHORTEST = 64  # steps of a chunk, at least

Arrays = dict[str, Tensor]


class GeneratedUnits:
    """The units of a plan with their kernels; raises CannotWalk."""

    def __init__(self, plan: Plan):
        self.programs: dict[int, Program] = {id(unit): generate(unit) for unit in cut_units(plan)}

    # ------------------------------------------------------------------ units
    def forward(
        self, unit: Unit, given: Given, how: Direction, keep: bool
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Exports, last states and what the backward pass reads of the states."""
        x, shape = given.flat()[0], (how.batch, how.time, unit.width)
        exports = [x.new_empty(shape) for _ in unit.exports]
        last = [torch.empty_like(s) for s in given.initial]
        own = {
            i: x.new_empty(shape if keep else 1, dtype=torch.float32)
            for i in unit.remembered
            if unit.exported_as(i) is None
        }
        arrays = self._arrays(given)
        arrays |= _named("E", exports) | _named("L", last) | {f"K{i}": t for i, t in own.items()}
        self._run(unit, "forward", given, how, arrays, keep)
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
        x, shape = given.flat()[0], (how.batch, how.time, unit.width)
        arrays = self._arrays(given)
        arrays |= {f"K{i}": t for i, t in zip(unit.remembered, remembered, strict=True)}
        arrays |= _named("DE", [x.new_zeros(shape) if g is None else g.contiguous() for g in dexports])
        pairs = zip(given.initial, dlast, strict=True)
        arrays |= _named("DL", [torch.zeros_like(s) if g is None else g.contiguous() for s, g in pairs])
        covered = [0] * len(given.sequences)
        for s in unit.backward.steps:
            covered[given.places[s][0]] += unit.width
        dsequences = [
            torch.empty_like(t) if wide == t.shape[-1] else torch.zeros_like(t)
            for t, wide in zip(given.sequences, covered, strict=True)
        ]
        arrays |= {f"DX{s}": dsequences[given.places[s][0]] for s in unit.backward.steps}
        dinitial = [torch.empty_like(s) for s in given.initial]
        arrays |= _named("DI", dinitial)
        chunks, _ = self._chunks(unit, how, "backward")
        pieces = (chunks, how.batch, unit.width)
        dvectors = {i: x.new_empty(pieces, dtype=torch.float32) for i in unit.backward.vectors}
        arrays |= {f"DV{i}": t for i, t in dvectors.items()}
        self._run(unit, "backward", given, how, arrays, True)
        summed = [
            dvectors[i].sum((0, 1)).to(v.dtype) if i in dvectors else torch.zeros_like(v)
            for i, v in enumerate(given.vectors)
        ]
        return Gradients(dsequences, summed, dinitial)

    @staticmethod
    def _arrays(given: Given) -> Arrays:
        arrays = {f"X{s}": given.sequences[k] for s, (k, _) in enumerate(given.places)}
        return arrays | _named("V", given.vectors) | _named("R", given.rows) | _named("I", given.initial)

    def _chunks(self, unit: Unit, how: Direction, name: str) -> tuple[int, int]:
        """How many chunks of time run side by side, and how long they are."""
        programs = how.batch * -(-unit.width // min(COLUMNS, _power(unit.width)))
        able = f"gather_{name}" in self.programs[id(unit)].kernels
        # The order of sums may not follow the length of a batch where outputs must not depend on it.
        if not able or programs >= FEWEST or how.time < 4 * SHORTEST or invariant.active():
            return 1, max(1, how.time)
        count = max(1, min(ENOUGH // programs, how.time // SHORTEST))
        length = -(-how.time // count // GROUP) * GROUP if count > 1 else how.time
        length = max(length, -(-how.time // count))
        return -(-how.time // length), length

    def _run(self, unit: Unit, name: str, given: Given, how: Direction, arrays: Arrays, keep: bool) -> None:
        """Launch a pass: the walk alone, or its chunks gathered and linked before it."""
        program, x = self.programs[id(unit)], given.flat()[0]
        module = load(program.text)
        chunks, length = self._chunks(unit, how, name)
        columns = min(COLUMNS, _power(unit.width))
        blocks = how.batch * -(-unit.width // columns)
        lengths = x if how.lengths is None else how.lengths.to(x.device)
        numbers = [lengths, how.time, unit.width, how.batch, length, chunks]
        for sequence, start in given.places:
            numbers += [given.sequences[sequence].shape[-1], start]
        modes = {
            "REVERSE": how.reverse,
            "RAGGED": how.lengths is not None,
            "CHUNKED": chunks > 1,
            "KEEP": keep,
        }
        size = (chunks, how.batch, unit.width) if chunks > 1 else (1,)  # the latter is never read
        for i in unit.carried:
            for array in (
                (f"C{i}", f"S{i}", *(f"A{i}_{j}" for j in unit.carried)) if chunks > 1 else (f"C{i}",)
            ):
                arrays[array] = x.new_empty(size, dtype=torch.float32)
        stages = (
            [(f"gather_{name}", chunks), (f"link_{name}", 1), (name, chunks)] if chunks > 1 else [(name, 1)]
        )
        with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
            for kernel, many in stages:
                found = [arrays[array] for array in program.kernels[kernel].arrays]
                getattr(module, kernel)[blocks, many](
                    *found, *numbers, **modes, BN=columns, num_warps=max(1, columns // 64)
                )

    # ------------------------------------------------------------------ products
    def multiply(self, x: Tensor, matrix: Tensor, lengths: Tensor | None) -> Tensor:
        """x ``(B, T, K)`` times ``(N, K)`` transposed."""
        with recurrent_precision():
            return x @ matrix.t()

    def outer(self, g: Tensor, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Σ over rows and real steps of g ``(B, T, N)`` xᵀ ``(B, T, K)``; g is zero past each row's end."""
        if lengths is not None:  # a zero times what lies there could be NaN
            x = torch.where(real_steps(x, lengths), x, x.new_zeros(()))
        with recurrent_precision():
            return g.reshape(-1, g.shape[-1]).t() @ x.reshape(-1, x.shape[-1])


def _named(kind: str, tensors: Sequence[Tensor]) -> Arrays:
    return {f"{kind}{i}": t for i, t in enumerate(tensors)}


def _power(width: int) -> int:
    """The power of two that is not less."""
    return 1 << max(0, width - 1).bit_length()
