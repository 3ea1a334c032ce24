"""Back-propagation through time in torch operations, from the same plan the compiled kernels come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.kernels.recurrence.arguments import Arguments, Call
from anaphora.kernels.recurrence.graph import Node, ancestors
from anaphora.kernels.recurrence.interpret import Evaluator, leaves
from anaphora.kernels.recurrence.plan import Plan, backward_roots
from anaphora.kernels.recurrence.reference import States, live_rows, reverse_rows

Values = dict[int, Tensor]


def run_bptt(plan: Plan, given: Arguments, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, States]:
    """Run a plan over time in torch operations, with its derived backward pass."""
    call = Call(given.counts(), lengths, reverse)
    tensors = given.flat()
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        return differentiable(plan, call, given)
    y, *last = _Bptt.apply(plan, call, *tensors)  # type: ignore[no-untyped-call]
    return y, tuple(last)


def differentiable(plan: Plan, call: Call, given: Arguments) -> tuple[Tensor, States]:
    """The plan's forward pass as torch operations that autograd follows, any number of times."""
    y, last, _ = _forward(plan, call, given, {})
    return y, last


def gradient_by_torch(
    plan: Plan, call: Call, tensors: Sequence[Tensor], needs: Sequence[bool], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradient as torch operations, which can be differentiated again."""
    y, last = differentiable(plan, call, call.arguments(tensors))
    pairs = [(v, g) for v, g in zip((y, *last), grads, strict=True) if g is not None and v.requires_grad]
    wanted = [t for t, need in zip(tensors, needs, strict=True) if need]
    outputs, weights = [v for v, _ in pairs], [g for _, g in pairs]
    found = iter(torch.autograd.grad(outputs, wanted, weights, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needs]


def _forward(
    plan: Plan, call: Call, given: Arguments, keep: dict[int, Node]
) -> tuple[Tensor, States, list[Values]]:
    """All steps; also the values of the nodes in ``keep`` at each step."""
    steps = [reverse_rows(s, call.lengths) for s in given.steps] if call.reverse else given.steps
    wanted = leaves(plan.outputs)
    ahead = {
        p.number: (steps[p.args[0].index] @ given.matrices[p.index].t()).unbind(1)
        for p in plan.products
        if p.args[0].op == "step"
    }
    evaluate = Evaluator(plan.outputs, {n.number for n in wanted.values()} | set(ahead))
    still = _constant_leaves(wanted, given)
    live = live_rows(steps[0], call.lengths)
    states, outputs, kept = tuple(given.initial), [], []
    for t, now in enumerate(zip(*(s.unbind(1) for s in steps), strict=True)):
        values = dict(still)
        for (kind, index), node in wanted.items():
            if kind in ("step", "state"):
                values[node.number] = now[index] if kind == "step" else states[index]
        values.update({number: parts[t] for number, parts in ahead.items()})
        new = tuple(evaluate(values, given.matrices, states[0]))
        kept.append({n: values[n] for n in keep if n in values})
        y = new[0]
        if live is not None:
            y = torch.where(live[t], y, y.new_zeros(()))
            new = tuple(torch.where(live[t], a, b) for a, b in zip(new, states, strict=True))
        outputs.append(y)
        states = new
    y = torch.stack(outputs, 1)
    return (reverse_rows(y, call.lengths) if call.reverse else y), states, kept


def _constant_leaves(wanted: dict[tuple[str, int], Node], given: Arguments) -> Values:
    """Leaves that stay the same at every step."""
    values = {}
    for (kind, index), node in wanted.items():
        if kind == "vector":
            values[node.number] = given.vectors[index]
        elif kind == "row":
            values[node.number] = given.rows[index]
    return values


class _Bptt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, call: Call, *tensors: Tensor) -> Any:
        forward = {n.number for n in ancestors(plan.outputs)}
        nodes = ancestors(backward_roots(plan.backward))
        keep = {n.number: n for n in nodes if n.number in forward and n.op not in ("vector", "row", "const")}
        keep.update({source.number: source for _, source in plan.operands})
        y, last, ctx.kept = _forward(plan, call, call.arguments(tensors), keep)
        ctx.plan, ctx.call = plan, call
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return y, *(s.clone() for s in last)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        tensors, needs = ctx.saved_tensors, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            return None, None, *gradient_by_torch(ctx.plan, ctx.call, tensors, needs, grads)
        return None, None, *_backward(ctx.plan, ctx.call, ctx.call.arguments(tensors), ctx.kept, grads)


def _backward(
    plan: Plan, call: Call, given: Arguments, kept: list[Values], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """From the last step to the first; then everything that can be done for all steps at once."""
    dstates, collected = _backward_steps(plan, call, given, kept, grads)
    joined: Iterator[Tensor] = iter(collected)
    dsteps = {index: next(joined) for index in plan.backward.steps}
    dvectors: list[Tensor | None] = [None] * len(given.vectors)
    for index in plan.backward.vectors:
        dvectors[index] = next(joined).sum((0, 1))
    dmatrices: list[Tensor | None] = [None] * len(given.matrices)
    for product, _ in plan.backward.products:
        g, source = next(joined), product.args[0]
        if source.op == "step":
            operand = given.steps[source.index]
            operand = reverse_rows(operand, call.lengths) if call.reverse else operand
            if source.index == 0:
                through = g @ given.matrices[product.index]
                dsteps[0] = dsteps[0] + through if 0 in dsteps else through
        else:
            operand = torch.stack([values[source.number] for values in kept], 1)
        dmatrices[product.index] = g.flatten(0, 1).t() @ operand.flatten(0, 1)
    dx = dsteps.get(0)
    if dx is not None and call.reverse:
        dx = reverse_rows(dx, call.lengths)
    nothing: list[Tensor | None] = [None] * (len(given.steps) - 1 + len(given.rows))
    return [*dmatrices, *dvectors, dx, *nothing, *dstates]


def _backward_steps(
    plan: Plan, call: Call, given: Arguments, kept: list[Values], grads: Sequence[Tensor | None]
) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients of the initial states, and every other root of the backward pass, ``(B, T, ·)``."""
    x = given.steps[0]
    dy = grads[0] if grads[0] is not None else x.new_zeros(*x.shape[:2], plan.state_widths[0])
    dys = (reverse_rows(dy, call.lengths) if call.reverse else dy).unbind(1)
    dstates = [torch.zeros_like(s) if g is None else g for s, g in zip(given.initial, grads[1:], strict=True)]
    roots = backward_roots(plan.backward)
    wanted = leaves(roots)
    still = _constant_leaves(wanted, given)
    seeds = {index: node.number for (kind, index), node in wanted.items() if kind == "gradient"}
    evaluate = Evaluator(roots, set(still) | set(seeds.values()) | set(kept[0]))
    live = live_rows(x, call.lengths)
    count = len(dstates)
    collected: list[list[Tensor]] = [[] for _ in roots[count:]]
    for t in range(len(dys) - 1, -1, -1):
        incoming = [dstates[0] + dys[t], *dstates[1:]]
        values = {**still, **kept[t], **{number: incoming[i] for i, number in seeds.items()}}
        found = evaluate(values, given.matrices, dstates[0])
        if live is None:
            dstates = found[:count]
        else:
            found = [torch.where(live[t], f, f.new_zeros(())) for f in found]
            dstates = [torch.where(live[t], f, d) for f, d in zip(found[:count], dstates, strict=True)]
        for place, value in zip(collected, found[count:], strict=True):
            place.append(value)
    return dstates, [torch.stack(values[::-1], 1) for values in collected]
