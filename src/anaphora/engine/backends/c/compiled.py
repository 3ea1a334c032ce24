"""Call a compiled plan: the generated C, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.base import BackendName, Case, Job, Result, States, no_plan
from anaphora.engine.backends.c import workspace
from anaphora.engine.backends.c.source import make_program
from anaphora.engine.backends.torch_ops.bptt import differentiable
from anaphora.engine.plan import Plan
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
            kept.append(workspace.take(y, B * T * program.kept_width))
            arrays["keep"] = kept[0]
            for m, source in plan.operands:
                kept.append(workspace.take(y, B * T * source.width).view(B * T, source.width))
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
        gradients = [workspace.take(x, B * T * w).view(B * T, w) for w in program.gradient_widths]
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
        workspace.give_back(gradients)
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
    return (y, *last), (workspace.Lease(kept),) if keep else ()


def _backward(back: Backward, *, run: CompiledRun) -> list[Tensor | None]:
    kept, tensors, grads, needs = back
    return run.backward(run.call.arguments(tensors), kept[0].buffers, grads, needs)


def _by_torch(*tensors: Tensor, run: CompiledRun) -> tuple[Tensor, ...]:
    y, last = differentiable(run.compiled.plan, run.call, run.call.arguments(tensors))
    return y, *last


_run = fused(_forward, _backward, _by_torch)
