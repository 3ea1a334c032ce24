"""The two passes of a plan as programs of single columns, and where each leaves what the other needs.

The forward program keeps values for the backward one: per column (``keep``), one number per row (``keep_rows``), and what it
published, which lies in the shared array anyway. The backward program reads them at their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from anaphora.engine.backends.persistent.columns import Columns, Key, Place, Program, Unsuitable, find
from anaphora.engine.backends.persistent.linear import rearrange_sums
from anaphora.engine.graph import Node
from anaphora.engine.plan import Plan, backward_roots

MOST_ORDERED = 6  # columns whose every order is tried


@dataclass
class Programs:
    """Both passes of a plan, for states of ``hidden`` units."""

    plan: Plan
    hidden: int
    forward: Program
    backward: Program
    products: list[tuple[Node, list[Key]]]  # of the plan, each with the gradient of its value by columns
    step_gradient: list[Key]  # of x, apart from what comes through products
    vector_gradients: dict[int, list[Key]]

    @cached_property
    def running(self) -> Program:
        """The forward pass when no backward pass follows."""
        return _forward(self.plan, self.hidden, ())


def make_programs(plan: Plan) -> Programs:
    """Raises :class:`Unsuitable` where the plan does not divide into columns."""
    hidden = plan.state_widths[0]
    if hidden < 2 or any(w != hidden for w in plan.state_widths):
        raise Unsuitable(
            f"its states are {plan.state_widths} wide; they must be equally wide, and wider than one"
        )
    forward = _forward(plan, hidden, plan.keep)
    return _backward(plan, hidden, forward)


def _forward(plan: Plan, hidden: int, keep: Sequence[Node]) -> Program:
    columns = Columns(hidden)
    results = [columns.key(output, 0) for output in plan.outputs]
    probe = Program(columns, False, len(results), results, [], [], [], [])
    shared = _arranged([e.operands for e in probe.products], [])
    kept = dict.fromkeys(k for n in keep if columns.in_loop(n) for k in columns.keys(n))
    row = [k for k in kept if columns.nodes[k[0]].width == 1]
    whole = [k for k in kept if k not in shared and k not in row]
    return Program(columns, False, len(results), results, shared, whole, row, [])


def _backward(plan: Plan, hidden: int, forward: Program) -> Programs:
    kept = {k: Place("kept", 0, i) for i, k in enumerate(forward.keep)}
    kept |= {k: Place("row_kept", 0, i) for i, k in enumerate(forward.keep_rows)}
    kept |= {
        k: Place("operand", 0, i)
        for i, k in enumerate(forward.shared)
        if forward.columns.in_loop(forward.columns.nodes[k[0]])
    }
    columns = Columns(hidden, kept, plan.views)
    derived = plan.backward
    roots = backward_roots(derived)
    linear = rearrange_sums(plan.graph, roots, {number for number, _ in kept})
    new = dict(zip((r.number for r in roots), linear, strict=True))
    results = [columns.key(new[n.number], 0) for n in derived.states]
    steps = [columns.keys(new[n.number]) for n in derived.steps.values()]
    vectors = {i: columns.keys(new[n.number]) for i, n in derived.vectors.items()}
    products = [(p, columns.keys(new[g.number])) for p, g in derived.products]
    gradients = [k for _, keys in products for k in keys]
    probe = Program(columns, True, len(results), [*results, *gradients], [], [], [], [])
    exchanged = [e.operands for e in probe.products]
    shared = _arranged(exchanged, [tuple(keys) for _, keys in products] + [tuple(k) for k in steps])
    sums = list(dict.fromkeys(k for keys in vectors.values() for k in keys))
    backward = Program(columns, True, len(results), results, shared, [], [], sums)
    return Programs(plan, hidden, forward, backward, products, steps[0] if steps else [], vectors)


def _arranged(exchanged: Sequence[tuple[Key, ...]], others: Sequence[tuple[Key, ...]]) -> list[Key]:
    """An order of all columns in which each group lies together; a column comes twice where there is none."""
    groups = [set(g) for g in (*exchanged, *others)]
    distinct = list(dict.fromkeys(k for g in (*exchanged, *others) for k in g))
    if len(distinct) <= MOST_ORDERED:
        for order in permutations(distinct):
            if all(find(list(order), g) is not None for g in groups):
                return list(order)
    row: list[Key] = []
    for group in (*exchanged, *others):
        if find(row, group) is None:
            row.extend(dict.fromkeys(group))
    return row


def together(shared: list[Key], wanted: Sequence[Key]) -> int:
    """Where a group of columns starts; all groups were arranged to lie together."""
    at = find(shared, wanted)
    if at is None:
        raise Unsuitable("the gradients of its products cannot be laid out together")
    return at
