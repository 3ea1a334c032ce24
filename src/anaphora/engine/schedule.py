"""When each value of a plan can be computed: once, for all steps at once, inside the loop, or after it.

On a GPU every operation inside the loop is a kernel per step, and without a compiler it is a call per step: what
need not be there is done for all steps at once, before the loop or after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anaphora.engine.graph import Node, until
from anaphora.engine.plan import Plan, backward_roots
from anaphora.engine.widen import widen

ONCE, AHEAD, LOOP = range(3)
_LEAVES = {"const": ONCE, "vector": ONCE, "row": ONCE, "step": AHEAD, "state": LOOP, "gradient": LOOP}


@dataclass(frozen=True)
class Schedule:
    """One pass: the nodes that cross from one part of it to the next."""

    once: list[Node]  # read by the loop, the same at every step
    ahead: list[Node]  # read by the loop, different at every step, but known before it
    loop: list[Node]  # the states or their gradients, carried from step to step
    collected: list[Node]  # values wanted of every step afterwards
    after: list[Node] = field(default_factory=list)  # made of these for all steps at once


def forward_schedule(plan: Plan) -> Schedule:
    """Of the forward pass; ``collected`` is what the backward pass needs."""
    new = widen(until(plan.outputs, ()), (), {})
    outputs = [new[n.number] for n in plan.outputs]
    wanted = {n.number: new[n.number] for n in (*plan.keep, *(source for _, source in plan.operands))}
    roots = [*outputs, *wanted.values()]
    once, ahead = _crossing(roots, tiers(until(roots, ()), {}), {})
    return Schedule(once, ahead, outputs, list(wanted.values()))


def backward_schedule(plan: Plan) -> Schedule:
    """Of the backward pass; ``after``: the gradients of step inputs, vectors and products, in this order."""
    known = {n.number: AHEAD for n in (*plan.keep, *(source for _, source in plan.operands))}
    old = backward_roots(plan.backward)
    new = widen(until(old, known), known, plan.views)
    roots = [new[n.number] for n in old]
    states, after = roots[: len(plan.state_widths)], roots[len(plan.state_widths) :]
    when = tiers(until(roots, known), known)
    once, ahead = _crossing(states, when, known)
    looped = {n.number for n in until(states, known) if when[n.number] == LOOP}
    looped |= {n.number for n in until(roots, known) if n.op == "gradient"}
    collected = [n for n in until(after, {*known, *looped}) if n.number in looped]
    return Schedule(once, ahead, states, collected, after)


def tiers(nodes: Iterable[Node], known: Mapping[int, int]) -> dict[int, int]:
    """When each node can be computed, by number: ONCE, AHEAD or LOOP; ``known`` says it of some."""
    found = dict(known)
    for node in nodes:
        if node.number not in found:
            found[node.number] = max((found[a.number] for a in node.args), default=_LEAVES.get(node.op, ONCE))
    return found


def _crossing(
    roots: list[Node], when: Mapping[int, int], known: Mapping[int, int]
) -> tuple[list[Node], list[Node]]:
    """The nodes known before the loop that the loop, or the caller who needs the roots, reads."""
    read = {n.number: n for n in roots}
    for node in until(roots, known):
        if when[node.number] == LOOP:
            read |= {a.number: a for a in node.args}
    found = list(read.values())
    return [n for n in found if when[n.number] == ONCE], [n for n in found if when[n.number] == AHEAD]
