"""The two passes of a plan through its kernels: what they are given, and what follows for all steps at once.

Axes: T time, B batch, H units. Every array with a row per step is ``(T·B, ·)``: time first, so that a step's rows lie
together and share pages of memory. A step lies at the place of its input, so that neither a direction nor lengths need
anything to be moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from anaphora.kernels.recurrence.arguments import Arguments, Call
from anaphora.kernels.recurrence.persistent import nvrtc
from anaphora.kernels.recurrence.persistent.ahead import reductions_ahead
from anaphora.kernels.recurrence.persistent.columns import Program
from anaphora.kernels.recurrence.persistent.driver import Loaded, check_report, report
from anaphora.kernels.recurrence.persistent.layout import Gradient, Layout, Packed
from anaphora.kernels.recurrence.persistent.packing import pack_depth, pack_rows, unpack_rows
from anaphora.kernels.recurrence.persistent.program import Programs
from anaphora.kernels.recurrence.persistent.source import NAME, Kernel
from anaphora.kernels.recurrence.persistent.tiling import Tiling
from anaphora.kernels.recurrence.precision import recurrent_precision
from anaphora.kernels.recurrence.reference import States

Arrays = dict[str, Tensor | None]


@dataclass
class Pass:
    """One pass for certain sizes on one GPU: its kernel, compiled when it is first run."""

    kernel: Kernel
    device: torch.device
    architecture: str
    processors: int

    @cached_property
    def loaded(self) -> Loaded:
        code = nvrtc.machine_code(self.kernel.source, self.architecture, "steps")
        tiling = self.kernel.tiling
        return Loaded(code, NAME, tiling.shared_memory, 32 * tiling.warps, tiling.cluster)

    @cached_property
    def matrices(self) -> list[Packed]:
        return Layout.matrices(self.kernel.program)

    @property
    def tiling(self) -> Tiling:
        return self.kernel.tiling

    @property
    def program(self) -> Program:
        return self.kernel.program

    def run(self, arrays: Arrays, time: int, batch: int, reverse: bool) -> None:
        """Launch; ``arrays`` by the names of the kernel's parameters."""
        index = self.device.index or 0
        arrays["REPORT"] = report(index)
        pointers = [arrays.get(name) for _, name in self.kernel.parameters]
        with torch.cuda.device(self.device):
            grid = self.tiling.grid(batch, self.processors)
            self.loaded.launch(grid, pointers, [time, batch, int(reverse), self.tiling.groups(batch)])

    def shared_arrays(self, like: Tensor, rows: int) -> Arrays:
        """What blocks exchange through, filled with the word that stands for nothing yet."""
        width, sums = self.kernel.shared_width, self.kernel.reduction_width * self.tiling.slices
        arrays: Arrays = {}
        if width:
            shared = torch.empty(rows, width, dtype=like.dtype, device=like.device)
            if self.kernel.polled:
                shared.view(torch.int32).fill_(-1)
            arrays["SHARED"] = shared
        if sums:
            arrays["ROWS"] = torch.full((rows, sums), -1, dtype=torch.int32, device=like.device)
        return arrays


@dataclass
class Kept:
    """What the forward pass leaves for the backward pass."""

    arrays: Arrays  # by the names of the backward kernel's parameters
    steps: tuple[Tensor, ...]  # inputs (T, B, ·)


class Passes:
    """Both passes of a plan; ``programs`` say what each number is."""

    def __init__(self, programs: Programs, forward: Pass, backward: Pass, running: Pass):
        self.programs, self.plan, self.hidden = programs, programs.plan, programs.hidden
        self.forward_pass, self.backward_pass, self.running_pass = forward, backward, running
        self.layout = Layout(programs)
        self._read_backward = {name for _, name in backward.kernel.parameters}

    # ------------------------------------------------------------------ forward
    def forward(self, call: Call, given: Arguments, keep: bool) -> tuple[Tensor, States, Kept]:
        """y ``(B, T, H)``, the last states ``(B, H)``, and what the backward pass needs."""
        check_report(given.steps[0].device.index or 0)
        given = _time_first(given)
        run = self.forward_pass if keep else self.running_pass
        x, program = given.steps[0], run.program
        time, batch = x.shape[:2]
        rows, kernel = batch * time, run.kernel
        with _precision(x):
            fixed = self._inputs(call, given)
        arrays = {**fixed, **run.shared_arrays(x, rows), **self._matrices(run, given)}
        arrays["Y"] = x.new_empty(batch, time, self.hidden)
        if program.keep:
            arrays["KEEP"] = x.new_empty(rows, self.hidden * kernel.kept)
        if program.keep_rows:
            arrays["KROW"] = x.new_empty(rows, kernel.kept_rows, dtype=torch.float32)
        last = tuple(torch.empty_like(s, memory_format=torch.contiguous_format) for s in given.initial)
        for k, (start, end) in enumerate(zip(given.initial, last, strict=True)):
            arrays[f"FIRST{k}"], arrays[f"LAST{k}"] = start.contiguous(), end
        run.run(arrays, time, batch, call.reverse)
        y = arrays["Y"]
        assert y is not None
        left = {
            **fixed,
            "KEEP": arrays.get("KEEP"),
            "KROW": arrays.get("KROW"),
            "OPERAND": arrays.get("SHARED"),
        }
        left = {name: value for name, value in left.items() if name in self._read_backward}
        return y, last, Kept(left, tuple(given.steps))

    def _inputs(self, call: Call, given: Arguments) -> Arrays:
        """What both kernels read and nobody writes: parameters, inputs, and products of inputs for all steps."""
        layout, x = self.layout, given.steps
        arrays: Arrays = {f"P{i}": given.vectors[i].contiguous() for i in layout.vectors}
        arrays |= {f"Q{i}": given.rows[i].contiguous() for i in layout.rows}
        arrays |= {f"S{i}": x[i] for i in layout.steps}
        for node in layout.products:
            source = x[node.args[0].index]
            arrays[f"X{node.number}"] = source.view(-1, source.shape[2]) @ given.matrices[node.index].t()
        if layout.ahead:
            arrays |= {f"A{n.number}": v for n, v in reductions_ahead(layout.ahead, given, arrays)}
        if call.lengths is not None:
            arrays["LENGTHS"] = call.lengths.to(x[0].device, torch.int32).clamp(0, x[0].shape[0]).contiguous()
        return arrays

    def _matrices(self, run: Pass, given: Arguments) -> Arrays:
        arrays: Arrays = {}
        for k, p in enumerate(run.matrices):
            matrix = given.matrices[p.matrix].detach()
            matrix = matrix.t() if p.transposed else matrix
            arrays[f"M{k}"] = pack_depth(matrix, p.at.wanted, p.at.entries, self.hidden, run.tiling.padded)
        return arrays

    # ------------------------------------------------------------------ backward
    def backward(
        self, call: Call, given: Arguments, kept: Kept, grads: Sequence[Tensor | None], needs: Sequence[bool]
    ) -> list[Tensor | None]:
        """The gradient of every tensor of ``given``, in its order."""
        given = given._replace(steps=kept.steps)
        run, x = self.backward_pass, given.steps[0]
        time, batch = x.shape[:2]
        arrays = {
            **kept.arrays,
            **run.shared_arrays(x, batch * time),
            **self._matrices(run, given),
        }
        arrays["DY"] = None if grads[0] is None else grads[0].transpose(0, 1).contiguous()
        dstates = [torch.empty_like(s, memory_format=torch.contiguous_format) for s in given.initial]
        for k, (end, start) in enumerate(zip(grads[1:], dstates, strict=True)):
            arrays[f"FIRST{k}"], arrays[f"LAST{k}"] = None if end is None else end.contiguous(), start
        sums = None
        if run.program.sums:
            blocks = run.tiling.grid(batch, run.processors) // run.tiling.slices
            threads = 32 * run.tiling.warps // run.tiling.columns
            shape = (len(run.program.sums), blocks * threads, run.tiling.padded)
            sums = arrays["SUMS"] = x.new_empty(shape, dtype=torch.float32)
        run.run(arrays, time, batch, call.reverse)
        with _precision(x):
            matrices, dx = self._after(given, kept, arrays.get("SHARED"), needs)
        vectors = self._vector_gradients(given, sums)
        nothing: list[Tensor | None] = [None] * (len(given.steps) - 1 + len(given.rows))
        return [*matrices, *vectors, dx, *nothing, *dstates]

    def _vector_gradients(self, given: Arguments, sums: Tensor | None) -> list[Tensor | None]:
        found: list[Tensor | None] = [None] * len(given.vectors)
        if sums is None:
            return found
        total = sums.sum(1)
        keys = self.backward_pass.program.sums
        for index, wanted in self.programs.vector_gradients.items():
            like = given.vectors[index]
            at = [keys.index(key) for key in wanted]
            if at == list(range(at[0], at[0] + len(at))):
                value = total[at[0] : at[0] + len(at), : self.hidden].reshape(-1)
            else:
                value = torch.cat([total[k, : self.hidden] for k in at])
            found[index] = (value.sum(0, keepdim=True) if like.shape[0] == 1 else value).to(like.dtype)
        return found

    def _after(
        self, given: Arguments, kept: Kept, shared: Tensor | None, needs: Sequence[bool]
    ) -> tuple[list[Tensor | None], Tensor | None]:
        """The gradients of matrices and of x: products over all rows and steps."""
        matrices: list[Tensor | None] = [None] * len(given.matrices)
        wants_x = needs[len(given.matrices) + len(given.vectors)]
        x, dx = given.steps[0], None
        if shared is None:
            return matrices, dx
        padded, h = self.backward_pass.tiling.padded, self.hidden
        for p in self.layout.gradients:
            g = shared[:, p.at.columns(padded)]
            if needs[p.matrix]:
                operand = self._operand(given, kept, p)
                found = unpack_rows(g.t() @ operand, p.at.wanted, p.at.entries, h, padded)
                if p.operand is not None:
                    wide = self.forward_pass.tiling.padded
                    found = unpack_rows(found.t(), p.operand.wanted, p.operand.entries, h, wide).t()
                matrices[p.matrix] = found
            if p.source.op == "step" and p.source.index == 0 and wants_x:
                weights = given.matrices[p.matrix].detach()
                through = g @ pack_rows(weights, p.at.wanted, p.at.entries, h, padded)
                dx = through if dx is None else dx + through
        for k, key in enumerate(self.programs.step_gradient if wants_x else ()):
            at = self.backward_pass.program.shared.index(key) * padded
            dx = torch.zeros_like(x).view(-1, x.shape[2]) if dx is None else dx
            dx[:, k * h : (k + 1) * h] += shared[:, at : at + h]
        return matrices, None if dx is None else dx.view(x.shape).transpose(0, 1)

    def _operand(self, given: Arguments, kept: Kept, product: Gradient) -> Tensor:
        """What a product multiplied, at all steps."""
        if product.operand is not None:
            shared = kept.arrays["OPERAND"]
            assert shared is not None
            return shared[:, product.operand.columns(self.forward_pass.tiling.padded)]
        value = given.steps[product.source.index]
        lengths = kept.arrays.get("LENGTHS")
        if lengths is not None:  # what lies past a row's end may be anything
            time = torch.arange(value.shape[0], device=value.device)
            value = torch.where((time[:, None] < lengths)[:, :, None], value, value.new_zeros(()))
        return value.view(-1, value.shape[2])


def _time_first(given: Arguments) -> Arguments:
    """Step inputs ``(B, T, ·)`` as ``(T, B, ·)``; free where a layer below made them."""
    return given._replace(steps=tuple(s.transpose(0, 1).contiguous() for s in given.steps))


def _precision(x: Tensor) -> AbstractContextManager[None]:
    """Products of float32 numbers as recurrent layers are asked to do them; others know but one way."""
    return recurrent_precision() if x.dtype == torch.float32 else nullcontext()
