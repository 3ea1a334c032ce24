"""The entry of the scan backend: cells whose columns never mix from step to step, by fused passes over all steps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Protocol

import torch
from torch import Tensor

from anaphora.engine.backends.base import BackendName, Case, Job, LayerRun, Result
from anaphora.engine.backends.c.compiled import real_rows
from anaphora.engine.backends.scan.source import (
    Program,
    UnitProgram,
    generate,
    products_source,
    steps_of,
    units_source,
)
from anaphora.engine.backends.scan.walk import Direction, Given, Gradients, Kernels, real_steps, run_units
from anaphora.engine.plan import Plan
from anaphora.engine.precision import recurrent_precision
from anaphora.engine.units import CannotWalk, Unit, cut_units, reduces
from anaphora.native.c import CannotCompile, CLibrary, address_of
from anaphora.native.cuda import KINDS, loaded, nvrtc
from anaphora.ops import invariant

name: BackendName = "scan"
about = "one fused pass over all steps: no column waits for another"
planned = True


def why_not(case: Case) -> str | None:
    """Why a step cannot be done in passes over all steps; None when it can."""
    if case.barred is not None or case.plan is None:
        return case.barred or case.no_plan
    if case.plan.loops is not None:
        return "a state's columns mix at every step: a loop over time"
    if not case.one_type:
        return "a parameter has another type than x"
    reason = _no_gpu_kernels(case) if case.device.type == "cuda" else _no_c(case)
    if reason is not None:
        return reason
    try:
        cut_units(case.plan)
    except CannotWalk as found:
        return str(found)
    return None


def _no_c(case: Case) -> str | None:
    if case.device.type != "cpu":
        return "no kernels are generated for this device"
    if case.plan is not None and reduces(case.plan):
        return "the step sums up rows, which c does in one order"
    return case.no_c


def _no_gpu_kernels(case: Case) -> str | None:
    if case.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"no kernels are generated for {case.dtype}"
    if torch.version.hip:
        return "its kernels are made for NVIDIA's GPUs"
    try:
        nvrtc()
    except CannotCompile as found:
        return str(found)
    return None


def run(job: Job) -> Result:
    """Run a plan's units."""
    plan, given = job.plan_and_tensors()
    x = given.steps[0]
    how = Direction(job.run.lengths, job.run.reverse, *x.shape[:2])
    result = run_units(plan, given, how, _kernels(plan, x))
    if x.is_cuda:
        plan.cache.get(_ran(job.run), lambda: True)
    return result


def compiled_before(plan: Plan, run: LayerRun) -> bool:
    """Whether kernels have run forward for such tensors, so that nothing of that pass has to be compiled."""
    return _ran(run) in plan.cache


def _ran(run: LayerRun) -> tuple[object, ...]:
    x = run.steps[0]
    return ("scan", "ran", x.shape, x.dtype, run.lengths is not None, run.reverse, torch.is_grad_enabled())


def _kernels(plan: Plan, x: Tensor) -> Kernels:
    if x.is_cuda:
        return plan.cache.get(("scan", "cuda"), lambda: GeneratedUnits(plan))
    return plan.cache.get(("scan", "c", x.dtype), lambda: CompiledUnits(plan, x.dtype == torch.float64))


# ---------------------------------------------------------------------- units and products on the CPU: calls of the generated C
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


# ----------------------------------------------------------------------
# Units and products on a GPU: launches of the generated CUDA kernels.
MOST_COLUMNS, FEWEST_COLUMNS = 128, 32  # of a row that a block takes
BUSY = 0.9  # share of the SMs that have a block, at least, where columns are enough
FEWEST = 128  # blocks of the fewest columns below which time is cut into chunks
ENOUGH = 2048  # such blocks that fill a GPU
SHORTEST = 64  # steps of a chunk, at least
RING = 96 * 1024  # bytes of shared memory for what a block reads ahead, at most
MOST_AHEAD, FEWEST_AHEAD = 128, 64  # steps it reads ahead, at most
ASYNCHRONOUS = (8, 0)  # the compute capability that has asynchronous copies

Arrays = dict[str, Tensor]


class Launches(Protocol):
    """A kernel that can be launched."""

    def launch(self, blocks: int, pointers: Sequence[Tensor | None], numbers: Sequence[int]) -> None:
        """Run it."""


class GeneratedUnits:
    """The units of a plan with their kernels; raises CannotWalk."""

    def __init__(self, plan: Plan):
        self.programs: dict[int, Program] = {id(unit): generate(unit) for unit in cut_units(plan)}
        self._loaded: dict[tuple[object, ...], Launches] = {}

    # ------------------------------------------------------------------ units
    def forward(
        self, unit: Unit, given: Given, how: Direction, keep: bool
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Exports, last states and what the backward pass reads of the states."""
        x, shape = given.flat()[0], (how.batch, how.time, unit.width)
        exports = [x.new_empty(shape) for _ in unit.exports]
        last = [torch.empty_like(s) for s in given.initial]
        own = {
            i: x.new_empty(shape, dtype=torch.float32)
            for i in unit.remembered
            if keep and unit.exported_as(i) is None
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
        dsequences = given.empty_gradients(unit)
        arrays |= {f"DX{s}": dsequences[given.places[s][0]] for s in unit.backward.steps}
        dinitial = [torch.empty_like(s) for s in given.initial]
        arrays |= _named("DI", dinitial)
        chunks, _ = self._chunks(unit, how, "backward", x)
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

    def _columns(self, unit: Unit, how: Direction, x: Tensor) -> int:
        """Columns of a block: as many as leave every SM one, if any do."""
        columns = MOST_COLUMNS
        while columns > FEWEST_COLUMNS and how.batch * -(-unit.width // columns) < BUSY * _sms(x.device):
            columns //= 2
        return columns

    def _chunks(self, unit: Unit, how: Direction, name: str, x: Tensor) -> tuple[int, int]:
        """How many chunks of time run side by side, and how long they are."""
        blocks = how.batch * -(-unit.width // FEWEST_COLUMNS)
        able = f"gather_{name}" in self.programs[id(unit)].kernels
        # The order of sums may not follow the length of a batch where outputs must not depend on it.
        if not able or blocks >= FEWEST or how.time < 4 * SHORTEST or invariant.active():
            return 1, max(1, how.time)
        count = max(1, min(ENOUGH // blocks, how.time // SHORTEST))
        length = -(-how.time // count)
        return -(-how.time // length), length

    def _run(self, unit: Unit, name: str, given: Given, how: Direction, arrays: Arrays, keep: bool) -> None:
        """Launch a pass: the walk alone, or its chunks gathered and linked before it."""
        x = given.flat()[0]
        chunks, length = self._chunks(unit, how, name, x)
        columns = self._columns(unit, how, x) if chunks == 1 else FEWEST_COLUMNS
        blocks = how.batch * -(-unit.width // columns)
        lengths = None if how.lengths is None else how.lengths.to(x.device, torch.int64)
        numbers = [how.time, unit.width, how.batch, length, chunks, int(how.reverse), int(keep)]
        for sequence, start in given.places:
            numbers += [given.sequences[sequence].shape[-1], start]
        if chunks > 1:
            for i in unit.carried:
                for array in (f"C{i}", f"S{i}", *(f"A{i}_{j}" for j in unit.carried)):
                    arrays[array] = x.new_empty(chunks, how.batch, unit.width, dtype=torch.float32)
        wide = _aligned(unit, given, arrays, x)
        stages = (
            [(f"gather_{name}", chunks), (f"link_{name}", 1), (name, chunks)] if chunks > 1 else [(name, 1)]
        )
        with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
            for kernel, many in stages:
                found = [arrays.get(array) for array in self.programs[id(unit)].kernels[kernel].arrays]
                run = self.loaded(unit, kernel, x, columns, chunks > 1, wide)
                run.launch(blocks * many, [*found, lengths], numbers)

    def loaded(self, unit: Unit, name: str, x: Tensor, columns: int, chunked: bool, wide: bool) -> Launches:
        """A kernel, compiled at its first use."""
        program = self.programs[id(unit)]
        row = columns * sum(4 if single else x.element_size() for single in program.kernels[name].streams)
        steps = steps_of(program.kernels[name])
        ahead = FEWEST_AHEAD if chunked else MOST_AHEAD  # blocks of many chunks read beside each other
        stages = max(2, min(ahead // steps, _ring(x.device) // max(1, row * steps)))
        key = (id(unit), name, x.dtype, x.device, columns, stages, wide)
        if key not in self._loaded:
            source = program.source(name, KINDS[x.dtype], columns, stages, wide)
            self._loaded[key] = self.compiled(source, name, stages * steps * row, columns, x.device)
        return self._loaded[key]

    def compiled(self, source: str, name: str, memory: int, threads: int, device: torch.device) -> Launches:
        """A kernel of a source on a device."""
        return loaded(source, name, memory, threads, device)

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


def _sms(device: torch.device) -> int:
    """Multiprocessors of a GPU; few where there is none, as in tests."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def _ring(device: torch.device) -> int:
    """Bytes of shared memory a block may take."""
    if device.type != "cuda":
        return RING
    facts = torch.cuda.get_device_properties(device)
    return min(RING, int(getattr(facts, "shared_memory_per_block_optin", facts.shared_memory_per_block)))


def _aligned(unit: Unit, given: Given, arrays: Arrays, x: Tensor) -> bool:
    """Whether everything read at every step lies at multiples of 16 bytes, and the GPU has copies of as many."""
    if x.is_cuda and torch.cuda.get_device_capability(x.device) < ASYNCHRONOUS:
        return False
    size = x.element_size()
    columns = [unit.width]
    for sequence, start in given.places:
        columns += [given.sequences[sequence].shape[-1], start]
    read = [t for name, t in arrays.items() if name.rstrip("0123456789") in ("X", "K", "DE")]
    return all(n * size % 16 == 0 for n in columns) and all(t.data_ptr() % 16 == 0 for t in read)
