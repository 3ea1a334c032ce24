"""The entry of the Triton backend: kernels generated for the plan, a few per step, captured and replayed as CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.base import BackendName, Case, Job, LayerRun, Result, States, no_plan
from anaphora.engine.backends.cuda_graph import run_captured
from anaphora.engine.backends.torch_ops.passes import Kept, Passes, gradients_after, real_steps, values_ahead
from anaphora.engine.backends.triton.source import Part, Program, generate_pass
from anaphora.engine.backends.triton.writer import (
    KEPT,
    CannotGenerate,
    backward_stages,
    forward_stages,
    number_of,
)
from anaphora.engine.graph import Node, until
from anaphora.engine.plan import Plan, backward_schedule
from anaphora.engine.precision import recurrent_precision
from anaphora.engine.ragged import transposed, transposed_rows
from anaphora.native.cache import module_of
from anaphora.native.following import needs_gradient

name: BackendName = "triton"
about = "kernels generated for the cell, a few per step, captured as a CUDA graph"
planned = True
OLDEST = (7, 0)  # compute capability Triton makes kernels for


def why_not(case: Case) -> str | None:
    """Why these kernels cannot serve; None when they can."""
    if case.device.type != "cuda":
        return "the tensors are not on an NVIDIA GPU"
    reason = no_plan(case)
    if reason is not None or case.plan is None:
        return reason
    if case.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"Triton's kernels are not made for {case.dtype}"
    if not installed():
        return "Triton is not installed"
    if torch.cuda.get_device_capability(case.device) < OLDEST:
        return "the GPU is older than those Triton makes kernels for"
    try:
        programs(case.plan)
    except CannotGenerate as found:
        return f"the step has {found}"
    return None


def run(job: Job) -> Result:
    """Run a plan by generated kernels; a shape that is not captured yet is left to the stand-in."""
    return run_captured(
        *job.plan_and_tensors(), job.run.lengths, job.run.reverse, GENERATED_PASSES, job.stand_in
    )


def compiled_before(plan: Plan, run: LayerRun) -> bool:
    """Whether the kernels have run for such tensors, so that nothing has to be compiled."""
    tensors = (*run.steps, *run.rows, *run.initial, *(run.params or {}).values())
    grad = needs_gradient(*tensors)
    return ran_before(plan, run.steps[0].dtype, run.lengths is not None, grad)


@cache
def installed() -> bool:
    """Whether Triton can be imported."""
    return find_spec("triton") is not None


# ----------------------------------------------------------------------
# A plan over time by generated kernels: the two passes, without autograd's part in them.
#
# Time comes first inside. The backward direction of a layer runs over the same arrays from the last step to the first, so
# nothing is reversed; rows that have ended (or not begun) keep their state.
Arrays = dict[str, Tensor]


def programs(plan: Plan) -> tuple[Program, Program]:
    """The kernels of both passes; raises CannotGenerate."""
    return plan.cache.get(
        ("triton", "programs"),
        lambda: (generate_pass(forward_stages(plan)), generate_pass(backward_stages(plan))),
    )


def forward_pass(plan: Plan, call: Call, given: Arguments, keep: bool) -> tuple[Tensor, States, Kept]:
    """y ``(B, T, H)``, the last states, and the values the backward pass needs when ``keep``."""
    program = programs(plan)[0]
    passed = program.passed
    with recurrent_precision():
        # (B, T, ·) to (T, B, ·), with zeros past the ends: products over all steps read them.
        ends = call.lengths
        steps = [transposed(s) if ends is None else transposed_rows(s, ends) for s in given.steps]
        arrays = _common(program, given, steps, values_ahead(passed.ahead, given, steps, {}))
        time, batch = steps[0].shape[:2]
        y = arrays["Y"] = steps[0].new_empty(batch, time, passed.unit, dtype=given.initial[0].dtype)
        first, last = (time, 0) if call.reverse else (0, time)
        for i, state in enumerate(given.initial):
            history = steps[0].new_empty(time + 1, batch, passed.unit, dtype=_state_type(plan, i, state))
            history[first] = state
            arrays[f"S{i}"] = history
        for node in passed.stored:
            arrays[f"N{number_of(node)}"] = _stored(node, time if keep else 2, given, steps[0])
        _Loop(program, call, given, arrays, keep, keeps=call.reverse).run(time, backwards=call.reverse)
    shift = int(call.reverse)
    histories = [arrays[f"S{i}"] for i in range(len(given.initial))]
    if call.lengths is None or call.reverse:
        lasts = tuple(h[last].to(s.dtype) for h, s in zip(histories, given.initial, strict=True))
    else:
        lasts = _take_lasts(histories, given.initial, call.lengths)
    if not keep:
        _note(plan, call, given, False)
    kept: Kept = {}
    if keep:
        kept = {n.number: arrays[f"N{number_of(n)}"] for n in passed.stored}
        kept |= {n.number: arrays[f"A{number_of(n)}"] for n in passed.ahead}
        for node in (*plan.keep, *(source for _, source in plan.operands)):
            if node.op == "state":
                kept[node.number] = arrays[f"S{node.index}"][shift : shift + time]
        kept |= dict(zip(_step_numbers(plan), steps, strict=True))
    return y, lasts, kept


def backward_pass(
    plan: Plan, call: Call, given: Arguments, kept: Kept, grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradient of every tensor of ``given``, in its order."""
    program = programs(plan)[1]
    passed = program.passed
    with recurrent_precision():
        steps = [kept[number] for number in _step_numbers(plan)]
        arrays = _common(program, given, steps, values_ahead(passed.ahead, given, steps, kept))
        arrays |= {f"K{number_of_key(number)}": value.contiguous() for number, value in kept.items()}
        time, batch = steps[0].shape[:2]
        like = given.initial[0]
        dy = grads[0]
        arrays["DY"] = like.new_zeros(batch, time, passed.unit) if dy is None else dy.contiguous()
        for i, grad in enumerate(grads[1:]):
            arrays[f"D{i}"] = like.new_zeros(2, batch, passed.unit, dtype=torch.float32)
            if grad is not None:
                arrays[f"D{i}"][0] = grad
            # Rows that have not begun in this pass keep what they came with; stages write those that have ended.
            arrays[f"OLD{i}"] = arrays[f"D{i}"][:1].repeat(2, 1, 1)
        keeps = call.reverse or any(g is not None for g in grads[1:])
        for node in passed.stored:
            arrays[f"N{number_of(node)}"] = _stored(node, time, given, steps[0])
        _Loop(program, call, given, arrays, True, keeps).run(time, backwards=not call.reverse)
        dstates = [arrays[f"D{i}"][time & 1].to(s.dtype) for i, s in enumerate(given.initial)]
        collected = {n.number: arrays[f"N{number_of(n)}"] for n in passed.stored}
        schedule = backward_schedule(plan)
        known = {**kept, **collected}
        read = {n.number for n in until(schedule.after, known)} | {s.number for _, s in plan.operands}
        values = {k: v.to(like.dtype) for k, v in known.items() if k in read}
        # The kernels store zeros past each row's end, and the steps were padded with zeros. A reversed row's states
        # before its start are its initial ones.
        zero = {*collected, *_step_numbers(plan), *(n.number for n in programs(plan)[0].passed.stored)}
        if not call.reverse:
            zero |= {source.number for _, source in plan.operands if source.op == "state"}
        real = real_steps(given.steps[0], call)
        matrices, vectors, dx = gradients_after(plan, schedule.after, given, steps, values, real, zero)
    _note(plan, call, given, True)
    nothing: list[Tensor | None] = [None] * (len(given.steps) - 1 + len(given.rows))
    dx = None if dx is None else dx.transpose(0, 1)
    return [*matrices, *vectors, dx, *nothing, *dstates]


def _take_lasts(histories: Sequence[Tensor], initial: States, lengths: Tensor) -> States:
    """The states ``(B, H)`` at each row's end. Histories ``(T + 1, B, H)`` become zero from there on.

    The backward pass multiplies them by gradients of 0 there, which would be NaN for a last state that is not finite.
    """
    ends = lengths.long().clamp(0, histories[0].shape[0] - 1)[None, :, None].expand(1, *initial[0].shape)
    found = [h.gather(0, ends)[0] for h in histories]
    for history in histories:
        history.scatter_(0, ends, 0.0)
    return tuple(f.to(s.dtype) for f, s in zip(found, initial, strict=True))


def ran_before(plan: Plan, dtype: torch.dtype, ragged: bool, grad: bool) -> bool:
    """Whether a plan's kernels have run for such tensors, so that nothing of them has to be compiled."""
    return ("triton", "ran", dtype, ragged, grad) in plan.cache


def _note(plan: Plan, call: Call, given: Arguments, grad: bool) -> None:
    plan.cache.get(("triton", "ran", given.steps[0].dtype, call.lengths is not None, grad), lambda: True)


def _step_numbers(plan: Plan) -> list[int]:
    """The nodes that stand for the step inputs, by number."""
    return [plan.graph.node("step", (), width, i).number for i, width in enumerate(plan.step_widths)]


def number_of_key(number: int) -> str:
    return str(number).replace("-", "w")


def _state_type(plan: Plan, index: int, state: Tensor) -> torch.dtype:
    """States that are multiplied are kept as the weights are, others exactly."""
    multiplied = any(source.op == "state" and source.index == index for _, source in plan.operands)
    return state.dtype if multiplied else torch.float32


def _stored(node: Node, slots: int, given: Arguments, x: Tensor) -> Tensor:
    dtype = x.dtype if node.width > 1 else torch.float32
    return x.new_empty(slots, x.shape[1], node.width, dtype=dtype)


def _common(program: Program, given: Arguments, steps: list[Tensor], ahead: Kept) -> Arrays:
    batch, unit, x = steps[0].shape[1], program.passed.unit, steps[0]
    arrays = {f"X{i}": s for i, s in enumerate(steps)}
    arrays |= {f"R{i}": r.contiguous() for i, r in enumerate(given.rows)}
    arrays |= {f"V{i}": v.contiguous() for i, v in enumerate(given.vectors)}
    arrays |= {f"M{i}": m.contiguous() for i, m in enumerate(given.matrices)}
    arrays |= {f"A{number_of_key(number)}": value.contiguous() for number, value in ahead.items()}
    for name, wide in program.scratch:
        arrays[name] = x.new_empty(2, batch, unit if wide else 1, dtype=torch.float32)
    return arrays


class _Loop:
    """Launches a program's kernels step by step."""

    def __init__(
        self, program: Program, call: Call, given: Arguments, arrays: Arrays, keep: bool, keeps: bool
    ):
        """``keep``: what is stored of every step lies at its time; ``keeps``: rows that are not live keep their states."""
        self.program, self.given, self.arrays, self.keep = program, given, arrays, keep
        self.batch, self.time = given.steps[0].shape[:2]
        self.unit, self.reverse = program.passed.unit, call.reverse
        module = module_of(program.text)
        self.kernels = {
            part.name: getattr(module, part.name)
            for part in (program.first, *program.each, program.last)
            if part is not None
        }
        ragged = 0 if call.lengths is None else KEPT if keeps else 1
        self.lengths = arrays["X0"] if call.lengths is None else call.lengths
        self.mode = (int(self.reverse), ragged, int(keep), self.unit)

    def run(self, time: int, backwards: bool) -> None:
        times = range(time - 1, -1, -1) if backwards else range(time)
        program = self.program
        if program.first is not None:
            self._launch(program.first, times[0], times[0], 0)
        for n, t in enumerate(times):
            for part in program.each:
                if not part.earlier:
                    self._launch(part, t, t, n)
                elif n + 1 < time:
                    self._launch(part, times[n + 1], t, n + 1)
        if program.last is not None:
            self._launch(program.last, times[-1], times[-1], time - 1)

    def _launch(self, part: Part, t: int, p: int, n: int) -> None:
        sizes = [(self.batch, node.args[0].width, node.width) for node in part.products]
        parts = min((shares(*size) for size in sizes), default=1)
        made = {
            f"P{number_of(node)}": self._product(node, p if part.earlier else t, n - int(part.earlier), parts)
            for node in part.products
        }
        size = row_tile(self.unit) if part.whole_rows else tile(self.batch, self.unit)
        self.kernels[part.name][size.grid(self.batch, self.unit)](
            *(made[name] if name in made else self.arrays[name] for name in part.arrays),
            self.lengths,
            t,
            p,
            n,
            self.batch,
            self.time,
            *self.mode,
            BM=size.rows,
            BN=size.columns,
            PARTS=parts,
            num_warps=size.warps,
        )

    def _product(self, node: Node, t: int, n: int, parts: int) -> Tensor:
        """A product of whole rows, summed in float32; in ``parts`` along the depth, which the kernel adds up."""
        operand = node.args[0]
        if operand.op == "state" and not self.program.passed.backward:
            value = self.arrays[f"S{operand.index}"][t + int(self.reverse)]
        else:
            value = self.arrays[f"N{number_of(operand)}"][t if self.keep else n & 1]
        matrix = self.given.matrices[node.index if node.index >= 0 else -1 - node.index]
        other = matrix.t() if node.index >= 0 else matrix
        if parts > 1:
            value = value.view(self.batch, parts, -1).transpose(0, 1)
            other = other.reshape(parts, -1, other.shape[1])
        if value.is_cuda and value.dtype != torch.float32:
            product = torch.bmm if parts > 1 else torch.mm
            return product(value, other, out_dtype=torch.float32)
        return value.float() @ other.float()


GENERATED_PASSES = Passes(forward_pass, backward_pass)


# ---------------------------------------------------------------------- how much of a step one program of a kernel computes
class Tile(NamedTuple):
    """Rows, columns and warps."""

    rows: int
    columns: int
    warps: int

    def grid(self, batch: int, hidden: int) -> tuple[int, int]:
        return -(-hidden // self.columns), -(-batch // self.rows)


def power(least: int) -> int:
    """The power of two not below ``least``."""
    return 1 << max(0, least - 1).bit_length()


def tile(batch: int, hidden: int) -> Tile:
    """Kernels that compute columns: about a thousand values a program."""
    columns = min(power(hidden), 256)
    return Tile(max(1, min(1024 // columns, power(batch))), columns, 4)


def row_tile(hidden: int) -> Tile:
    """Kernels that sum over whole rows."""
    columns = power(hidden)
    return Tile(max(1, 512 // columns), columns, 8 if columns > 2048 else 4)


SMS = 132  # of the GPUs this was measured on


def shares(batch: int, depth: int, width: int) -> int:
    """Into how many a product ``(batch, depth) · (depth, width)`` is cut along its depth.

    Few results keep few SMs busy, so the library would cut it anyway and add the shares up in another kernel;
    what reads the product can do that for nothing.
    """
    blocks = -(-batch // 128) * -(-width // 64)
    found = 1
    while found < 4 and 2 * found * blocks <= SMS and depth % (2 * found) == 0 and depth >= 2048 * found:
        found *= 2
    return found
