"""The two passes of a plan through its kernels: what they are given, and what follows for all steps at once.

Axes: T time, B batch, H units. Every array with a row per step is ``(T·B, ·)``: time first, so that a step's rows lie
together and share pages of memory. A step lies at the place of its input, so that neither a direction nor lengths need
anything to be moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.base import States
from anaphora.engine.backends.persistent.columns import Columns
from anaphora.engine.backends.persistent.launch import (
    Arrays,
    Gradient,
    Layout,
    Pass,
    Programs,
    pack_depth,
    pack_rows,
    unpack_rows,
)
from anaphora.engine.backends.torch_ops.passes import Evaluator, leaves
from anaphora.engine.graph import Node
from anaphora.engine.precision import recurrent_precision
from anaphora.engine.ragged import longest_first, transposed, transposed_rows
from anaphora.native.cuda import check_report


@dataclass
class Begun:
    """A pass that is ready to be launched: what its kernel is given, and what it will have written."""

    run: Pass
    arrays: Arrays
    states: States  # the last ones, or the gradients of the first
    sums: Tensor | None = None


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
        self.all = (forward, backward, running)
        self.layout = Layout(programs)
        # What the backward kernel reads of what was there or came about in the forward pass.
        self._left = {name for _, name in backward.kernel.reads.pointers()}
        self._left |= {"KEEP", "KROW", "OPERAND", "LENGTHS"}

    # ------------------------------------------------------------------ forward
    def forward(self, call: Call, given: Arguments, keep: bool) -> tuple[Tensor, States, Kept]:
        """y ``(B, T, H)``, the last states ``(B, H)``, and what the backward pass needs."""
        x = given.steps[0]
        check_report(x.device.index or 0)
        lengths = lengths_of(call, x)
        given = given._replace(steps=self.time_first(given.steps, lengths, keep))
        y = x.new_empty(*x.shape[:2], self.hidden)
        places = None if lengths is None else longest_first(lengths, x.shape[1])
        begun = self.begin(given, places, y, keep)
        begun.run.run([begun.arrays], x.shape[1], x.shape[0], call.reverse, False)
        return y, begun.states, self.kept(begun, given)

    def time_first(self, steps: Sequence[Tensor], lengths: Tensor | None, keep: bool) -> tuple[Tensor, ...]:
        """Step inputs ``(B, T, ·)`` as ``(T, B, ·)``, with zeros past the end of a row where gradients will read them."""
        if lengths is None or not keep:
            return tuple(transposed(s) for s in steps)
        read = self.layout.multiplied
        return tuple(transposed_rows(s, lengths) if i in read else transposed(s) for i, s in enumerate(steps))

    def begin(self, given: Arguments, places: Tensor | None, y: Tensor, keep: bool) -> Begun:
        """A forward pass into ``y``; step inputs ``(T, B, ·)``; ``places``: lengths and rows, the longest first."""
        run = self.forward_pass if keep else self.running_pass
        x, program = given.steps[0], run.program
        rows, kernel = x.shape[0] * x.shape[1], run.kernel
        with _precision(x):
            arrays = self._inputs(given)
        arrays |= {"LENGTHS": places, "Y": y, **run.shared_arrays(x, rows), **self._matrices(run, given)}
        if program.keep:
            arrays["KEEP"] = x.new_empty(rows, self.hidden * kernel.kept)
        if program.keep_rows:
            arrays["KROW"] = x.new_empty(rows, kernel.kept_rows, dtype=torch.float32)
        last = tuple(torch.empty_like(s, memory_format=torch.contiguous_format) for s in given.initial)
        for k, (start, end) in enumerate(zip(given.initial, last, strict=True)):
            arrays[f"FIRST{k}"], arrays[f"LAST{k}"] = start.contiguous(), end
        return Begun(run, arrays, last)

    def kept(self, begun: Begun, given: Arguments) -> Kept:
        """What a forward pass leaves for the backward pass."""
        arrays = {**begun.arrays, "OPERAND": begun.arrays.get("SHARED")}
        return Kept({name: a for name, a in arrays.items() if name in self._left}, tuple(given.steps))

    def _inputs(self, given: Arguments) -> Arrays:
        """What both kernels read and none writes: parameters, inputs, and products of inputs for all steps."""
        layout, x = self.layout, given.steps
        arrays: Arrays = {f"P{i}": given.vectors[i].contiguous() for i in layout.vectors}
        arrays |= {f"Q{i}": given.rows[i].contiguous() for i in layout.rows}
        arrays |= {f"S{i}": x[i] for i in layout.steps}
        for node in layout.products:
            source = x[node.args[0].index]
            arrays[f"X{node.number}"] = source.view(-1, source.shape[2]) @ given.matrices[node.index].t()
        if layout.ahead:
            arrays |= {f"A{n.number}": v for n, v in reductions_ahead(layout.ahead, given, arrays)}
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
        time, batch = given.steps[0].shape[:2]
        dy, time_first = in_memory(grads[0])
        begun = self.begin_backward(given, kept, dy, grads[1:])
        begun.run.run([begun.arrays], time, batch, call.reverse, time_first)
        return self.gradients(begun, given, kept, needs, None)

    def begin_backward(
        self, given: Arguments, kept: Kept, dy: Tensor | None, ends: Sequence[Tensor | None]
    ) -> Begun:
        """A backward pass from the gradients of y, in either order of its axes, and of the last states."""
        run, x = self.backward_pass, given.steps[0]
        time, batch = x.shape[:2]
        arrays = {
            **kept.arrays,
            **run.shared_arrays(x, batch * time),
            **self._matrices(run, given),
        }
        arrays["DY"] = dy
        dstates = [torch.empty_like(s, memory_format=torch.contiguous_format) for s in given.initial]
        for k, (end, start) in enumerate(zip(ends, dstates, strict=True)):
            arrays[f"FIRST{k}"], arrays[f"LAST{k}"] = (
                None if end is None else end.resolve_neg().contiguous(),
                start,
            )
        sums = None
        if run.program.sums:
            blocks = run.blocks(batch) // run.tiling.slices
            threads = 32 * run.tiling.warps // run.tiling.columns
            shape = (len(run.program.sums), blocks * threads, run.tiling.padded)
            sums = arrays["SUMS"] = x.new_empty(shape, dtype=torch.float32)
        return Begun(run, arrays, tuple(dstates), sums)

    def gradients(
        self, begun: Begun, given: Arguments, kept: Kept, needs: Sequence[bool], dx: Tensor | None
    ) -> list[Tensor | None]:
        """What follows a backward pass; the gradient of x is added to ``dx`` ``(T·B, ·)`` where there is one."""
        with _precision(given.steps[0]):
            matrices, dx = self._after(given, kept, begun.arrays.get("SHARED"), needs, dx)
        vectors = self._vector_gradients(given, begun.sums)
        nothing: list[Tensor | None] = [None] * (len(given.steps) - 1 + len(given.rows))
        if dx is not None:
            dx = dx.view(given.steps[0].shape).transpose(0, 1)
        return [*matrices, *vectors, dx, *nothing, *begun.states]

    def _vector_gradients(self, given: Arguments, sums: Tensor | None) -> list[Tensor | None]:
        found: list[Tensor | None] = [None] * len(given.vectors)
        if sums is None:
            return found
        total = sums.sum(1)
        keys = self.backward_pass.program.sums
        for index, wanted in self.programs.vector_gradients.items():
            like = given.vectors[index]
            at = [keys.index(key) for key in wanted]
            if at == list(range(len(total))) and total.shape[1] == self.hidden:
                value = total.view(-1)
            elif at == list(range(at[0], at[0] + len(at))):
                value = total[at[0] : at[0] + len(at), : self.hidden].reshape(-1)
            else:
                value = torch.cat([total[k, : self.hidden] for k in at])
            found[index] = (value.sum(0, keepdim=True) if like.shape[0] == 1 else value).to(like.dtype)
        return found

    def _after(
        self,
        given: Arguments,
        kept: Kept,
        shared: Tensor | None,
        needs: Sequence[bool],
        dx: Tensor | None,
    ) -> tuple[list[Tensor | None], Tensor | None]:
        """The gradients of matrices and of x: products over all rows and steps."""
        matrices: list[Tensor | None] = [None] * len(given.matrices)
        wants_x = needs[len(given.matrices) + len(given.vectors)]
        x = given.steps[0]
        if shared is None:
            return matrices, dx
        padded, h = self.backward_pass.tiling.padded, self.hidden
        for p in self.layout.gradients:
            g = p.at.of(shared, padded)
            if needs[p.matrix]:
                operand = self._operand(given, kept, p)
                found = unpack_rows(g.t() @ operand, p.at.wanted, p.at.entries, h, padded)
                wide = self.forward_pass.tiling.padded
                if p.operand is not None and not (p.operand.in_order and wide == h):
                    found = unpack_rows(found.t(), p.operand.wanted, p.operand.entries, h, wide).t()
                matrices[p.matrix] = found
            if p.source.op == "step" and p.source.index == 0 and wants_x:
                weights = given.matrices[p.matrix].detach()
                weights = pack_rows(weights, p.at.wanted, p.at.entries, h, padded)
                dx = g @ weights if dx is None else dx.addmm_(g, weights)
        for k, key in enumerate(self.programs.step_gradient if wants_x else ()):
            at = self.backward_pass.program.shared.index(key) * padded
            dx = torch.zeros_like(x).view(-1, x.shape[2]) if dx is None else dx
            dx[:, k * h : (k + 1) * h] += shared[:, at : at + h]
        return matrices, dx

    def _operand(self, given: Arguments, kept: Kept, product: Gradient) -> Tensor:
        """What a product multiplied, at all steps."""
        if product.operand is not None:
            shared = kept.arrays["OPERAND"]
            assert shared is not None
            return product.operand.of(shared, self.forward_pass.tiling.padded)
        value = given.steps[product.source.index]
        return value.view(-1, value.shape[2])


def lengths_of(call: Call, x: Tensor) -> Tensor | None:
    """The lengths of the rows of x ``(B, T, ·)``, beside it."""
    if call.lengths is None:
        return None
    kind = torch.int32 if call.lengths.dtype == torch.int32 else torch.int64
    return call.lengths.to(x.device, kind).contiguous()


def in_memory(dy: Tensor | None) -> tuple[Tensor | None, bool]:
    """A gradient ``(B, T, ·)`` as kernels read it, and whether the time comes first in memory."""
    if dy is None:
        return None, False
    dy = dy.resolve_neg()
    time_first = dy.transpose(0, 1)
    return (time_first, True) if time_first.is_contiguous() else (dy.contiguous(), False)


def _precision(x: Tensor) -> AbstractContextManager[None]:
    """Products of float32 numbers as recurrent layers are asked to do them; others know but one way."""
    return recurrent_precision() if x.dtype == torch.float32 else nullcontext()


# ---------------------------------------------------------------------- before the loop
def reductions_ahead(
    wanted: Sequence[Node], given: Arguments, products: dict[str, Tensor | None]
) -> Iterator[tuple[Node, Tensor]]:
    """Each reduction ``(T·B, 1)`` in float32; step inputs ``(T, B, ·)``; ``products`` holds the products of the inputs, as X and their number."""
    columns = Columns(1)
    moments: dict[int, tuple[Tensor, Tensor]] = {}
    for node in sorted(wanted, key=lambda n: n.number):
        total = columns.centred(node)
        source = node.args[0] if total is None else total.args[0]
        whole = products.get(f"X{source.number}")
        if whole is not None and node.op == "sum":
            if source.number not in moments:
                moments[source.number] = _moments(whole)
            yield node, moments[source.number][0 if total is None else 1]
        else:
            yield node, _evaluated(node, given, products)


def _moments(value: Tensor) -> tuple[Tensor, Tensor]:
    """Σ x and Σ (x − x̄)² of each row, by the one kernel torch has that keeps both in float32."""
    width = value.shape[1]
    _, mean, deviation = torch.native_layer_norm(value, [width], None, None, 1e-30)
    return mean * width, width / (deviation * deviation)


def _evaluated(node: Node, given: Arguments, products: dict[str, Tensor | None]) -> Tensor:
    """Any reduction, operation by operation."""
    rows = given.steps[0].shape[0] * given.steps[0].shape[1]
    values: dict[int, Tensor] = {}
    for name, value in products.items():
        if name.startswith("X") and value is not None:
            values[int(name[1:])] = value.float()
    for (kind, index), leaf in leaves([node]).items():
        if kind == "step":
            values[leaf.number] = given.steps[index].reshape(rows, -1).float()
        elif kind == "vector":
            values[leaf.number] = given.vectors[index].float()
        elif kind == "row":
            values[leaf.number] = given.rows[index].repeat(given.steps[0].shape[0], 1).float()
    like = given.steps[0].reshape(rows, -1).float()
    matrices = [m.float() for m in given.matrices]
    return Evaluator([node], set(values))(values, matrices, like)[0].contiguous()
