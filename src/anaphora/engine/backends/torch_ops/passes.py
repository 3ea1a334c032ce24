"""A plan over time in torch operations: the two passes, without autograd's part in them.

Axes: T time, B batch. Inside, time comes first, so that a step's values lie together; the outside is batch first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.base import BackendName, Case, Job, Result, States, no_plan
from anaphora.engine.backends.reference import live_rows, reverse_rows
from anaphora.engine.backends.torch_ops import fixed
from anaphora.engine.backends.torch_ops.fixed import product as fixed_product
from anaphora.engine.graph import Node, until
from anaphora.engine.ops import OPS
from anaphora.engine.plan import Plan, Schedule, backward_schedule, forward_schedule
from anaphora.native.fused import Backward, fused
from anaphora.ops.invariant import in_groups

Values = dict[int, Tensor]  # by a node's number
Kept = dict[int, Tensor]  # (T, B, ·)


class Passes(NamedTuple):
    """What runs a plan over time: the functions below, or others with the same arguments and results."""

    forward: Callable[[Plan, Call, Arguments, bool], tuple[Tensor, States, Kept]]
    backward: Callable[[Plan, Call, Arguments, Kept, Sequence[Tensor | None]], list[Tensor | None]]


def forward_loop(plan: Plan, call: Call, given: Arguments, keep: bool) -> tuple[Tensor, States, Kept]:
    """y ``(B, T, H)``, the last states, and the values the backward pass needs when ``keep``."""
    schedule = forward_schedule(plan)
    steps = [_time_first(s, call) for s in given.steps]
    like = given.initial[0]
    still = _once(schedule, given, like, call.fixed)
    ahead = values_ahead(schedule.ahead, given, steps, {}, call.fixed)
    inner = leaves(schedule.loop)
    reads = {node.number: steps[i].unbind(0) for (kind, i), node in inner.items() if kind == "step"}
    reads |= {number: value.unbind(0) for number, value in ahead.items()}
    places = [(i, node.number) for (kind, i), node in inner.items() if kind == "state"]
    collect = (
        [n for n in schedule.collected if n.number not in reads and n.number not in still] if keep else []
    )
    known = {*still, *reads, *(number for _, number in places)}
    evaluate = Evaluator([*schedule.loop, *collect], known, call.fixed)
    live = live_rows(given.steps[0], call.lengths)
    count = len(schedule.loop)
    states, outputs = tuple(given.initial), []
    lists: list[list[Tensor]] = [[] for _ in collect]
    for t in range(steps[0].shape[0]):
        values = {**still, **{number: parts[t] for number, parts in reads.items()}}
        values.update({number: states[i] for i, number in places})
        found = evaluate(values, given.matrices, like)
        new = tuple(found[:count])
        for place, value in zip(lists, found[count:], strict=True):
            place.append(value)
        y = new[0]
        if live is not None:
            y = torch.where(live[t], y, y.new_zeros(()))
            new = tuple(torch.where(live[t], a, b) for a, b in zip(new, states, strict=True))
        outputs.append(y)
        states = new
    y = torch.stack(outputs, 1)
    kept = {n.number: torch.stack(parts) for n, parts in zip(collect, lists, strict=True)}
    for node in schedule.collected if keep else ():
        if node.number in ahead:
            kept[node.number] = ahead[node.number]
        elif node.number in reads:
            kept[node.number] = steps[node.index]
        elif node.number in still:
            kept[node.number] = wide(still[node.number], node.width, like).expand(len(outputs), -1, -1)
    return (reverse_rows(y, call.lengths) if call.reverse else y), states, kept


def backward_loop(
    plan: Plan, call: Call, given: Arguments, kept: Kept, grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradient of every tensor of ``given``, in its order: from the last step to the first, and after that
    everything that can be done for all steps at once."""
    schedule = backward_schedule(plan)
    steps = [_time_first(s, call) for s in given.steps]
    dstates, collected = _backward_steps(call, given, steps, schedule, kept, grads)
    real = real_steps(given.steps[0], call)
    values = {**kept, **collected}
    matrices, vectors, dx = gradients_after(plan, schedule.after, given, steps, values, real)
    if dx is not None:
        dx = dx.transpose(0, 1).contiguous()
        dx = reverse_rows(dx, call.lengths) if call.reverse else dx
    nothing: list[Tensor | None] = [None] * (len(given.steps) - 1 + len(given.rows))
    return [*matrices, *vectors, dx, *nothing, *dstates]


def gradients_after(
    plan: Plan,
    after: Sequence[Node],
    given: Arguments,
    steps: list[Tensor],
    known: Kept,
    real: Tensor | None,
    zero: Collection[int] = (),
) -> tuple[list[Tensor | None], list[Tensor | None], Tensor | None]:
    """The gradients of matrices and vectors and of x ``(T, B, ·)``, for all steps at once.

    ``steps`` ``(T, B, ·)``; ``known``: what was kept and collected of every step; ``real`` ``(T·B, 1)``: which steps
    are real, None when all are. The rest is set to zero, except the nodes numbered in ``zero``, which are zero there
    already: a padded step times a gradient of 0 would be NaN where a state ended as NaN or infinite.
    """
    rows = steps[0].shape[0] * steps[0].shape[1]
    values = {number: value.reshape(rows, -1) for number, value in known.items()}
    values.update(_leaf_values(after, given, steps))
    like = steps[0].reshape(rows, -1)
    found = Evaluator(after, values)(values, given.matrices, like)
    at_end = iter([g if n.number in zero else _only(real, g) for n, g in zip(after, found, strict=True)])
    dsteps = {index: next(at_end) for index in plan.backward.steps}
    dvectors: list[Tensor | None] = [None] * len(given.vectors)
    for index in plan.backward.vectors:
        dvectors[index] = next(at_end).sum(0)
    dmatrices: list[Tensor | None] = [None] * len(given.matrices)
    for product, _ in plan.backward.products:
        g, source = next(at_end), product.args[0]
        if source.op == "step":
            operand = steps[source.index].reshape(rows, -1)
            if source.index == 0:
                through = g @ given.matrices[product.index]
                dsteps[0] = dsteps[0] + through if 0 in dsteps else through
        else:
            operand = known[source.number].reshape(rows, -1)
        dmatrices[product.index] = g.t() @ (operand if source.number in zero else _only(real, operand))
    dx = dsteps[0].view(*steps[0].shape[:2], -1) if 0 in dsteps else None
    return dmatrices, dvectors, dx


def _backward_steps(
    call: Call,
    given: Arguments,
    steps: list[Tensor],
    schedule: Schedule,
    kept: Kept,
    grads: Sequence[Tensor | None],
) -> tuple[list[Tensor], Kept]:
    """The gradients of the initial states, and what is wanted of every step, ``(T, B, ·)``."""
    like = given.initial[0]
    dys = None if grads[0] is None else _time_first(grads[0], call).unbind(0)
    dstates = [torch.zeros_like(s) if g is None else g for s, g in zip(given.initial, grads[1:], strict=True)]
    still = _once(schedule, given, like)
    ahead = values_ahead(schedule.ahead, given, steps, kept)
    reads = {number: value.unbind(0) for number, value in ahead.items()}
    roots = [*schedule.loop, *schedule.collected]
    seeds = [(n.number, i) for (kind, i), n in leaves(roots).items() if kind == "gradient"]
    evaluate = Evaluator(roots, {*still, *reads, *(number for number, _ in seeds)})
    live = live_rows(given.steps[0], call.lengths)
    count = len(schedule.loop)
    lists: list[list[Tensor]] = [[] for _ in schedule.collected]
    for t in range(steps[0].shape[0] - 1, -1, -1):
        incoming = dstates if dys is None else [dstates[0] + dys[t], *dstates[1:]]
        values = {**still, **{number: parts[t] for number, parts in reads.items()}}
        values.update({number: incoming[i] for number, i in seeds})
        found = evaluate(values, given.matrices, like)
        for place, value in zip(lists, found[count:], strict=True):
            place.append(value)
        new = found[:count]
        if live is not None:
            new = [torch.where(live[t], f, d) for f, d in zip(new, dstates, strict=True)]
        dstates = new
    collected = {n.number: torch.stack(v[::-1]) for n, v in zip(schedule.collected, lists, strict=True)}
    return dstates, collected


def _time_first(value: Tensor, call: Call) -> Tensor:
    """``(B, T, ·)`` as ``(T, B, ·)``, in the direction of the run."""
    value = reverse_rows(value, call.lengths) if call.reverse else value
    return value.transpose(0, 1).contiguous()


def _once(schedule: Schedule, given: Arguments, like: Tensor, fixed: int = 0) -> Values:
    """Values that are the same at every step."""
    values = _leaf_values(schedule.once, given, [])
    Evaluator(schedule.once, values, fixed)(values, given.matrices, like)
    return {n.number: values[n.number] for n in schedule.once}


def values_ahead(
    nodes: Sequence[Node], given: Arguments, steps: list[Tensor], known: Kept, fixed: int = 0
) -> Kept:
    """Values of every step that are known before the loop, all steps at once: ``(T, B, ·)``."""
    time, batch = steps[0].shape[:2]
    values = {number: value.reshape(time * batch, -1) for number, value in known.items()}
    values.update(_leaf_values(nodes, given, steps))
    like = steps[0].reshape(time * batch, -1)
    found = Evaluator(nodes, values, fixed)(values, given.matrices, like)
    return {n.number: v.reshape(time, batch, -1) for n, v in zip(nodes, found, strict=True)}


def _leaf_values(roots: Sequence[Node], given: Arguments, steps: list[Tensor]) -> Values:
    """The leaves of nodes computed once, or for all steps at once where ``steps`` ``(T, B, ·)`` are given."""
    values = {}
    for (kind, index), node in leaves(roots).items():
        if kind == "vector":
            values[node.number] = given.vectors[index]
        elif kind == "row":
            row = given.rows[index]
            values[node.number] = row.repeat(steps[0].shape[0], 1) if steps else row
        elif kind == "step":
            values[node.number] = steps[index].reshape(-1, steps[index].shape[2])
    return values


def real_steps(x: Tensor, call: Call) -> Tensor | None:
    """Which of the T·B steps are real, ``(T·B, 1)``; None when all are."""
    if call.lengths is None:
        return None
    time = torch.arange(x.shape[1], device=x.device)
    return (time[:, None] < call.lengths.to(x.device)).reshape(-1, 1)


def _only(real: Tensor | None, value: Tensor) -> Tensor:
    """Zero past each row's end."""
    return value if real is None else torch.where(real, value, value.new_zeros(()))


LOOP_PASSES = Passes(forward_loop, backward_loop)


# ----------------------------------------------------------------------
# Nodes of a plan computed by torch operations, for one step or for many steps at once.
#
# The same evaluator, differentiated by torch itself, serves second derivatives.
class Evaluator:
    """Computes nodes for some rows; ``order`` is found once and used at every step.

    ``fixed``: products on the CPU add up in an order that does not depend on the number of rows; that many rows of
    each group are real. 0: torch multiplies.
    """

    def __init__(self, roots: Sequence[Node], given: Collection[int], fixed: int = 0):
        self.roots, self.fixed = list(roots), fixed
        self.dense: dict[int, Tensor] = {}  # factors of fixed products, by number
        self.order = [node for node in until(roots, given) if node.number not in given]
        self.zeros: dict[int, Tensor] = {}  # by width

    def __call__(self, values: dict[int, Tensor], matrices: Sequence[Tensor], like: Tensor) -> list[Tensor]:
        """``values`` holds what is given and receives what is computed; rows are those of ``like`` ``(B, ·)``."""
        for node in self.order:
            values[node.number] = self._compute(node, values, matrices, like)
        return [wide(values[r.number], r.width, like) for r in self.roots]

    def _compute(
        self, node: Node, values: dict[int, Tensor], matrices: Sequence[Tensor], like: Tensor
    ) -> Tensor:
        args = [values[a.number] for a in node.args]
        pointwise = OPS.get(node.op)
        if pointwise is not None:
            result = pointwise.torch(*args)
            return result.to(like.dtype) if result.dtype is torch.bool else result
        if node.op == "const":
            return torch.full((), node.value, dtype=like.dtype, device=like.device)
        if node.op == "product":
            value = wide(args[0], node.args[0].width, like)
            matrix = matrices[node.index].t() if node.index >= 0 else matrices[-1 - node.index]
            if self.fixed:
                if node.index not in self.dense:
                    self.dense[node.index] = matrix.contiguous()
                return fixed_product(value, self.dense[node.index], self.fixed)
            return self._product(value, matrix)
        if node.op == "slice":
            return wide(args[0], node.args[0].width, like)[:, node.index : node.index + node.width]
        if node.op == "cat":
            return torch.cat([wide(a, n.width, like) for a, n in zip(args, node.args, strict=True)], 1)
        if node.op == "spread":
            return args[0]
        if node.op == "sum":
            return wide(args[0], node.args[0].width, like).sum(1, keepdim=True)
        if node.op == "maximum":
            return wide(args[0], node.args[0].width, like).amax(1, keepdim=True)
        raise NotImplementedError(node.op)

    def _product(self, value: Tensor, matrix: Tensor) -> Tensor:
        if not value.is_cuda:
            return value @ matrix
        # With a bias torch asks another library, whose kernels for few rows are up to twenty times faster (sixteen
        # rows of 128 numbers on an H200: 2.4 µs instead of 52).
        width = matrix.shape[1]
        if width not in self.zeros:
            self.zeros[width] = matrix.new_zeros(width)
        return torch.addmm(self.zeros[width], value, matrix)


def wide(value: Tensor, width: int, like: Tensor) -> Tensor:
    """A value that may be kept narrower than it is, at its whole width and for every row of ``like``."""
    return value.expand(like.shape[0], width)


def leaves(roots: Iterable[Node]) -> dict[tuple[str, int], Node]:
    """The leaves some nodes are made of, by kind and number."""
    kinds = ("step", "row", "state", "vector", "gradient")
    return {(n.op, n.index): n for n in until(roots, ()) if n.op in kinds}


# ----------------------------------------------------------------------
# Back-propagation through time by a plan's two passes: in torch operations, or in what else computes them.
name: BackendName = "torch"
about = "the plan as a loop of torch operations"
planned = True


def why_not(case: Case) -> str | None:
    """Why the plan cannot be run by torch operations; None when it can."""
    return no_plan(case)


def run(job: Job) -> Result:
    """Run a plan by torch operations, one by one; outputs on the CPU do not depend on the batch, bit for bit."""
    plan, given = job.plan_and_tensors()
    lengths, reverse = job.run.lengths, job.run.reverse
    if not fixed.wanted(given.initial[0]):
        return run_bptt(plan, given, lengths, reverse)

    left = given.steps[0].shape[0]

    def group(steps: States, rows: States, initial: States, ends: Tensor | None) -> Result:
        nonlocal left
        part = Arguments(given.matrices, given.vectors, steps, rows, initial)
        call = Call(given.counts(), ends, reverse, fixed=min(left, fixed.ROWS))
        left -= fixed.ROWS
        y, last, _ = forward_loop(plan, call, part, keep=False)
        return y, last

    return in_groups(group, tuple(given.steps), tuple(given.rows), given.initial, lengths, fixed.ROWS)


def run_bptt(
    plan: Plan, given: Arguments, lengths: Tensor | None, reverse: bool, passes: Passes = LOOP_PASSES
) -> tuple[Tensor, States]:
    """Run a plan over time by its two passes, the backward one derived."""
    call = Call(given.counts(), lengths, reverse)
    y, *last = _bptt(*given.flat(), plan=plan, call=call, passes=passes)
    return y, tuple(last)


def differentiable(plan: Plan, call: Call, given: Arguments) -> tuple[Tensor, States]:
    """The plan's forward pass as torch operations that autograd follows, any number of times."""
    y, last, _ = forward_loop(plan, call, given, keep=False)
    return y, last


def gradient_by_torch(
    plan: Plan, call: Call, tensors: Sequence[Tensor], needs: Sequence[bool], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradient by torch operations, which can be differentiated again."""
    return _bptt.gradients(tensors, grads, needs, {"plan": plan, "call": call, "passes": LOOP_PASSES})


def _forward(
    keep: bool, *tensors: Tensor, plan: Plan, call: Call, passes: Passes
) -> tuple[tuple[Tensor, ...], Sequence[Any]]:
    y, last, kept = passes.forward(plan, call, call.arguments(tensors), keep)
    return (y, *(s.clone() if keep else s for s in last)), (kept,)


def _backward(back: Backward, *, plan: Plan, call: Call, passes: Passes) -> Sequence[Tensor | None]:
    kept, tensors, grads, _ = back
    return passes.backward(plan, call, call.arguments(tensors), kept[0], grads)


def _by_torch(*tensors: Tensor, plan: Plan, call: Call, passes: Passes) -> tuple[Tensor, ...]:
    y, last = differentiable(plan, call, call.arguments(tensors))
    return y, *last


_bptt = fused(_forward, _backward, _by_torch)
