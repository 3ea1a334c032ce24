"""Call a compiled plan: the generated C, forward and backward."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.base import BackendName, Case, Job, Result, States, no_plan
from anaphora.engine.backends.c.source import make_program
from anaphora.engine.backends.torch_ops.passes import differentiable
from anaphora.engine.plan import Plan
from anaphora.engine.trace import Trace
from anaphora.native.c import CLibrary, address_of
from anaphora.native.fused import Backward, fused

name: BackendName = "c"
about = "the plan compiled as C"
planned = True
ROWS_PER_THREAD = 8


class CompiledPlan:
    """A plan with its machine code."""

    def __init__(self, plan: Plan, double: bool):
        self.plan = plan
        self.program = make_program(plan, double)
        self.dtype = torch.float64 if double else torch.float32
        source = self.program.source
        self.library = CLibrary(
            "recurrence",
            lambda double: source,
            (self.dtype,),
            no_memory="a recurrence ran out of memory; use shorter or smaller batches",
            void=("pack", "pack_row"),
            counts=("packed_size",),
        )
        self.arrays = {
            name: [(array, array.startswith("vector")) for array in arrays]
            for name, arrays in self.program.arrays.items()
        }
        self.steps = self.library.load(self.dtype)  # raises where it cannot be compiled
        self.constants = torch.tensor(self.program.constants or [0.0], dtype=self.dtype)

    def check(self, tensors: Sequence[Tensor], matrices: Sequence[Tensor], vectors: Sequence[Tensor]) -> None:
        """Machine code does not notice a tensor of another type, size or device, so this does."""
        dtype = self.dtype
        if not all(t.is_cpu for t in tensors):
            raise RuntimeError("expected all tensors of a recurrence on the CPU, got one on another device")
        wrong = next((t.dtype for t in tensors if t.dtype != dtype), None)
        if wrong is not None:
            raise RuntimeError(f"expected all tensors of a recurrence to have dtype {dtype}, got {wrong} too")
        found = [tuple(m.shape) for m in matrices] + [(v.numel(),) for v in vectors]
        wanted: list[tuple[int, ...]] = [(m.out, m.width) for m in self.plan.matrices]
        wanted += [(w,) for w in self.plan.vector_widths]
        if found != wanted:
            raise RuntimeError(
                f"the parameters of a recurrence changed their shapes from {wanted} to {found}"
            )

    def call(self, name: str, head: Sequence[int], rows: Tensor, arrays: dict[str, Tensor | None]) -> None:
        """Run one of the program's functions. ``rows``: order and lengths, ``(2, B)``."""
        # Parameters among them are only read; what the program writes to was made for it.
        tensors = [address_of(arrays[array]) if read else arrays[array] for array, read in self.arrays[name]]  # type: ignore[arg-type]
        first = rows.data_ptr()
        sizes = (*head, *self.program.sizes)
        self.library.call(
            self.dtype, name, sizes, (first, first + 8 * rows.shape[1], self.constants, *tensors)
        )

    def pack(self, matrix: Tensor, transposed: bool = False, row: bool = False) -> Tensor:
        """A matrix ``(out, in)`` in the order the products read it; ``row``: for one row at a time."""
        matrix = matrix.resolve_neg()
        out, inner = matrix.shape[::-1] if transposed else matrix.shape
        ln, lk = matrix.stride()[::-1] if transposed else matrix.stride()
        packed = matrix.new_empty(self.library.count(self.dtype, "packed_size", out, inner))
        function = "pack_row" if row else "pack"
        self.library.call(self.dtype, function, (out, inner, ln, lk), (address_of(matrix), packed))
        return packed

    def outer(self, a: Tensor, b: Tensor, rows: Tensor | None) -> Tensor:
        """aᵀ b over some rows (all when None): ``(K, M)`` and ``(K, N)`` to ``(M, N)``; columns lie together."""
        (count, m), n = a.shape, b.shape[1]
        if rows is not None:
            count = len(rows)
        result = a.new_empty(m, n)
        threads = max(1, min(torch.get_num_threads(), m // 128))
        sizes = (m, n, count, threads, a.stride(0), b.stride(0))
        no_memory = "a weight gradient ran out of memory"
        self.library.call(self.dtype, "outer", sizes, (a, b, result, rows), no_memory=no_memory)
        return result


def threads_for(batch: int) -> int:
    return max(1, min(torch.get_num_threads(), -(-batch // ROWS_PER_THREAD)))


@lru_cache(maxsize=64)
def _equal_rows(batch: int, time: int) -> Tensor:
    return torch.stack((torch.arange(batch), torch.full((batch,), time)))


def row_table(batch: int, time: int, lengths: Tensor | None) -> Tensor:
    """Rows from the longest to the shortest, and their lengths: ``(2, B)``."""
    if lengths is None:
        return _equal_rows(batch, time)
    ends, order = torch.sort(lengths.to("cpu", torch.int64), descending=True, stable=True)
    if len(ends) != batch or int(ends[-1]) < 0 or int(ends[0]) > time:  # machine code would read past the end
        raise ValueError(f"a recurrence needs {batch} lengths between 0 and its {time} steps.")
    return torch.stack((order, ends))


def real_rows(time: int, lengths: Tensor | None) -> Tensor | None:
    """Which of the B·T steps are real, by number; None when all are."""
    if lengths is None:
        return None
    return (torch.arange(time) < lengths.to("cpu")[:, None]).flatten().nonzero().flatten()


class CompiledRun:
    """One run of a compiled plan: everything but the tensors, which autograd has to see."""

    def __init__(self, compiled: CompiledPlan, call: Call):
        self.compiled, self.call = compiled, call

    def _common(self, given: Arguments) -> tuple[dict[str, Tensor | None], Tensor, list[int]]:
        x = given.steps[0]
        table = row_table(x.shape[0], x.shape[1], self.call.lengths)
        arrays: dict[str, Tensor | None] = {}
        for name, group in zip(("vector", "step", "row", "init"), given[1:], strict=True):
            arrays.update({f"{name}{i}": t.resolve_neg().contiguous() for i, t in enumerate(group)})
        head = [x.shape[1], x.shape[0], int(self.call.reverse), threads_for(x.shape[0])]
        return arrays, table, head

    def forward(self, given: Arguments, keep: bool) -> tuple[Tensor, States, list[Tensor]]:
        """y, the last states, and what the backward pass needs."""
        plan, program = self.compiled.plan, self.compiled.program
        arrays, table, head = self._common(given)
        B, T = given.steps[0].shape[:2]
        y = given.steps[0].new_empty(B, T, plan.state_widths[0])
        last = tuple(torch.empty_like(s, memory_format=torch.contiguous_format) for s in given.initial)
        arrays["y"] = y
        arrays.update({f"last{i}": s for i, s in enumerate(last)})
        arrays.update({f"m{m}": self.compiled.pack(w.detach()) for m, w in enumerate(given.matrices)})
        kept = []
        if keep:
            kept.append(take(y, B * T * program.kept_width))
            arrays["keep"] = kept[0]
            for m, source in plan.operands:
                kept.append(take(y, B * T * source.width).view(B * T, source.width))
                arrays[f"op{m}"] = kept[-1]
        self.compiled.call("forward_keep" if keep else "forward", head, table, arrays)
        return y, last, kept

    def backward(
        self, given: Arguments, kept: Sequence[Tensor], grads: Sequence[Tensor | None], needs: Sequence[bool]
    ) -> list[Tensor | None]:
        """The gradient of every tensor of ``given``, in its order."""
        plan, program = self.compiled.plan, self.compiled.program
        arrays, table, head = self._common(given)
        x = given.steps[0]
        B, T = x.shape[:2]
        dy, *dlast = (None if g is None else g.resolve_neg().contiguous() for g in grads)
        arrays["dy"] = dy
        arrays["keep"] = kept[0]
        for (m, _), operand in zip(plan.operands, kept[1:], strict=True):
            arrays[f"op{m}"] = operand
        gradients = [take(x, B * T * w).view(B * T, w) for w in program.gradient_widths]
        arrays.update({f"g{a}": g for a, g in enumerate(gradients)})
        groups = -(-B // 8)
        dvector = x.new_zeros(groups, max(1, sum(plan.vector_widths)))
        arrays["dvector"] = dvector
        dinit = [torch.empty_like(s, memory_format=torch.contiguous_format) for s in given.initial]
        for i, (a, b) in enumerate(zip(dlast, dinit, strict=True)):
            arrays[f"dlast{i}"], arrays[f"dinit{i}"] = a, b
        wants_x = needs[len(given.matrices) + len(given.vectors)]
        dx = None
        if wants_x:
            used = 0 in program.step_parts or any(p.args[0].op == "step" for p, _ in plan.backward.products)
            made = torch.empty_like if used else torch.zeros_like
            dx = made(x, memory_format=torch.contiguous_format)
        arrays["dx"] = arrays["dstep0"] = dx
        for m, w in enumerate(given.matrices):
            if f"mt{m}" in program.arrays["backward"]:
                arrays[f"mt{m}"] = self.compiled.pack(w.detach(), transposed=True)
        self.compiled.call("backward", head, table, arrays)
        dmatrices = self._matrix_gradients(given, kept, gradients, needs)
        give_back(gradients)
        dvectors: list[Tensor | None] = []
        if given.vectors:
            dvectors.extend(torch.split(dvector.sum(0), plan.vector_widths))
        nothing: list[Tensor | None] = [None] * (len(given.steps) - 1 + len(given.rows))
        return [*dmatrices, *dvectors, dx, *nothing, *dinit]

    def _matrix_gradients(
        self, given: Arguments, kept: Sequence[Tensor], gradients: Sequence[Tensor], needs: Sequence[bool]
    ) -> list[Tensor | None]:
        """Each weight gradient in one product over all rows and steps."""
        plan, program = self.compiled.plan, self.compiled.program
        operands = {m: operand for (m, _), operand in zip(plan.operands, kept[1:], strict=True)}
        for product in plan.products:
            if product.args[0].op == "step":
                operands[product.index] = given.steps[product.args[0].index]
        result: list[Tensor | None] = [None] * len(given.matrices)
        real = real_rows(given.steps[0].shape[1], self.call.lengths)
        for where in program.gradients:
            m = where.matrix
            if needs[m]:
                g = gradients[where.array][:, where.start : where.start + plan.matrices[m].out]
                operand = operands[m].contiguous().view(-1, plan.matrices[m].width)
                result[m] = self.compiled.outer(g, operand, real)
        return result


def why_not(case: Case) -> str | None:
    """Why a compiled program cannot serve; None when it can."""
    if case.device.type != "cpu":
        return "the tensors are not on the CPU"
    return no_plan(case) or case.no_c


def run(job: Job) -> Result:
    """Run a plan by its compiled program."""
    assert job.prepared is not None
    assert job.prepared.compiled is not None
    assert job.given is not None
    return run_compiled(job.prepared.compiled, job.given, job.run.lengths, job.run.reverse)


def run_compiled(
    compiled: CompiledPlan, given: Arguments, lengths: Tensor | None, reverse: bool
) -> tuple[Tensor, States]:
    """Run a compiled plan over time; shapes as in the reference."""
    run = CompiledRun(compiled, Call(given.counts(), lengths, reverse))
    tensors = given.flat()
    compiled.check(tensors, given.matrices, given.vectors)
    y, *last = _run(*tensors, run=run)
    return y, tuple(last)


def _forward(keep: bool, *tensors: Tensor, run: CompiledRun) -> tuple[tuple[Tensor, ...], Sequence[Any]]:
    y, last, kept = run.forward(run.call.arguments(tensors), keep)
    return (y, *last), (Lease(kept),) if keep else ()


def _backward(back: Backward, *, run: CompiledRun) -> list[Tensor | None]:
    kept, tensors, grads, needs = back
    return run.backward(run.call.arguments(tensors), kept[0].buffers, grads, needs)


def _by_torch(*tensors: Tensor, run: CompiledRun) -> tuple[Tensor, ...]:
    y, last = differentiable(run.compiled.plan, run.call, run.call.arguments(tensors))
    return y, *last


_run = fused(_forward, _backward, _by_torch)

# ----------------------------------------------------------------------
# Large buffers used again: fresh memory costs a page fault every 4 KiB, which can exceed the arithmetic.
#
# Buffers that only the engine sees are taken here and given back when their last user is gone.
LIMIT = 512 << 20  # bytes held for later use, at most
SMALL = 1 << 14  # elements; below this the allocator does as well

_free: dict[tuple[torch.dtype, int], list[Tensor]] = {}
_held = 0
_lock = RLock()  # one that may be taken twice: a `Lease` can be collected while this thread holds it


def take(like: Tensor, count: int) -> Tensor:
    """An uninitialised buffer of ``count`` elements of the type of ``like``, which must lie on the CPU."""
    global _held
    if count < SMALL:
        return like.new_empty(count)
    size = _rounded(count)
    with _lock:
        waiting = _free.get((like.dtype, size))
        if waiting:
            buffer = waiting.pop()
            _held -= buffer.nbytes
            return buffer[:count]
    return like.new_empty(size)[:count]


def give_back(buffers: Sequence[Tensor]) -> None:
    """Let other calls use these buffers; the caller may not look at them any more."""
    global _held
    for view in buffers:
        whole = view._base if view._base is not None else view
        if whole.numel() < SMALL:
            continue
        with _lock:
            if _held + whole.nbytes <= LIMIT:
                _held += whole.nbytes
                _free.setdefault((whole.dtype, whole.numel()), []).append(whole)


def held() -> int:
    """Bytes that wait for later use."""
    return _held


def clear() -> None:
    """Return everything to the system."""
    global _held
    with _lock:
        _free.clear()
        _held = 0


def _rounded(count: int) -> int:
    """Up to a multiple of an eighth of the next lower power of two, so that similar sizes share buffers."""
    unit = 1 << max(0, count.bit_length() - 4)
    return -(-count // unit) * unit


class Lease:
    """Buffers on loan until this object goes."""

    def __init__(self, buffers: Sequence[Tensor]):
        self.buffers = list(buffers)

    def __del__(self) -> None:
        give_back(self.buffers)


# ----------------------------------------------------------------------
# One step at a time, for streaming and decoding: weights stay packed between calls, and a call does little else.
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
