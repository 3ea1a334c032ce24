"""The kernels of a pass as the text of a Python module."""

from __future__ import annotations

from dataclasses import dataclass

from anaphora.engine.backends.triton.writer import (
    EARLIER,
    KEPT,
    NOW,
    Item,
    Kernel,
    Pass,
    When,
    name_of,
    number_of,
    width_of,
)
from anaphora.engine.graph import Node

TANH = """@triton.jit
def tanh(v):
    s = v * v  # near zero by its series, where the difference below would lose digits
    near = v * (1.0 - s * (1 / 3 - s * (2 / 15 - s * (17 / 315 - s * 62 / 2835))))
    return tl.where(tl.abs(v) < 0.25, near, 2.0 * tl.sigmoid(2.0 * v) - 1.0)
"""
"""As a function of Triton."""
_OPENING = f'''"""Written by anaphora from the equations of a recurrent cell."""

import triton
import triton.language as tl


{TANH}

@triton.jit
def row_sum(v):
    return tl.sum(v, 1)[:, None]


@triton.jit
def row_max(v):  # tl.max leaves NaN out: the sum puts it in again
    return tl.max(v, 1)[:, None] + row_sum(tl.where(v != v, v, 0.0))


@triton.jit
def total(P, at, size, mask, PARTS: tl.constexpr):
    v = tl.load(P + at, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(1, PARTS):
        v += tl.load(P + part * size + at, mask=mask, other=0.0).to(tl.float32)
    return v
'''
# Sizes and modes are given at each launch, so that a cell is compiled once and not for every width.
_SCALARS = ("t", "p", "n", "B", "T", "REV", "RAGGED", "KEEP")
_CONSTANTS = ("BM", "BN", "PARTS")


@dataclass(frozen=True)
class Part:
    """One kernel of a step: what it is given, the products to be made before it, and how it takes its columns."""

    name: str
    arrays: tuple[str, ...]
    products: tuple[Node, ...]  # made before it
    earlier: bool  # its products belong to the step before
    whole_rows: bool


@dataclass(frozen=True)
class Program:
    """The kernels of a pass. ``first`` runs before the loop and ``last`` after it where two steps share a kernel."""

    text: str
    first: Part | None
    each: tuple[Part, ...]
    last: Part | None
    scratch: tuple[tuple[str, bool], ...]  # (name, whether as wide as a state; one number otherwise)
    passed: Pass


def generate_pass(passed: Pass) -> Program:
    """The kernels of a pass."""
    end = passed.last
    bodies: list[Kernel] = []
    needed: dict[tuple[int, int], Item] = {}
    for stage in range(end, -1, -1):
        kernel = _write(passed, f"stage{stage}", [(stage, NOW)], needed)
        bodies.insert(0, kernel)
        needed |= kernel.crossing
    scratch = tuple((f"C{name_of(item)}", item.node.width > 1) for _, item in sorted(needed.items()))
    first, last, each = None, None, bodies
    head = bodies[0]
    if end and not _products(passed, 0):  # nothing to wait for between a step's end and the next one's start
        both = _write(passed, "between", [(end, EARLIER), (0, NOW)], needed)
        first, last, each = head, bodies[-1], [*bodies[1:-1], both]
    order = each if first is None or last is None else [first, *each, last]
    text = _OPENING + "".join(_function(k) for k in order)
    parts = {id(k): _part(passed, k) for k in order}
    return Program(
        text,
        None if first is None else parts[id(first)],
        tuple(parts[id(k)] for k in each),
        None if last is None else parts[id(last)],
        scratch,
        passed,
    )


def _products(passed: Pass, stage: int) -> list[Node]:
    """The products that belong to a stage."""
    found: dict[int, Node] = {}
    stack = [*passed.roots, *passed.stored]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node.number in seen or passed.is_array(node):
            continue
        seen.add(node.number)
        if node.op == "product" and passed.stage(node) == stage:
            found[node.number] = node
        stack.extend(node.args)
    return [found[k] for k in sorted(found)]


def _write(
    passed: Pass, name: str, parts: list[tuple[int, When]], needed: dict[tuple[int, int], Item]
) -> Kernel:
    kernel = Kernel(passed, name)
    for stage, when in parts:
        for node in passed.stored:
            for chunk in range(passed.chunks(node)):
                item = passed.resolve(node, chunk)
                if passed.stage(item.node) == stage:
                    value = f"tl.where({when.live}, {kernel.ask(item, stage, when)}, 0.0)"
                    name, width = f"N{number_of(node)}", width_of(passed, node)
                    kernel.store(name, when.here, width, chunk, node.width > 1, value)
        for item in needed.values():
            if passed.stage(item.node) == stage:
                value = kernel.ask(item, stage, when)
                wide = item.node.width > 1
                kernel.store(f"C{name_of(item)}", when.slot, "H" if wide else "1", 0, wide, value)
        if passed.backward and stage == 0:
            _keep_old(kernel, when)
        if stage == passed.last:
            finish = _finish_backward if passed.backward else _finish_forward
            finish(kernel, stage, when, joined=len(parts) > 1)
    return kernel


def _keep_old(kernel: Kernel, when: When) -> None:
    """Gradients of the states as they came, for rows that have ended before the loop does."""
    if not kernel.passed.last:
        return
    for i in range(len(kernel.passed.roots)):
        dead = f"~{when.live}"
        old = kernel.incoming.get(i) or kernel.old(f"D{i}", when.slot, when)
        kernel.store(f"OLD{i}", when.slot, "H", 0, True, old, f" & {dead}")
        kernel.stores[-1] = f"if (RAGGED == {KEPT}) & (REV != 0):\n        {kernel.stores[-1]}"


def _finish_forward(kernel: Kernel, stage: int, when: When, joined: bool) -> None:
    """The new states; of a row that is not live, what it keeps."""
    passed = kernel.passed
    for i, root in enumerate(passed.roots):
        value = kernel.ask(passed.resolve(root, 0), stage, when)
        name = f"new{i}"
        states = [n.number for n in _leaves(passed, "state") if n.index == i]
        known = [kernel.known[k] for k in ((when.prefix, n, 0) for n in states) if k in kernel.known]
        old = (
            f"tl.where(RAGGED == {KEPT}, {known[0]}, 0.0)"
            if known
            else kernel.old(f"S{i}", when.before, when)
        )
        kernel.lines.append(f"{name} = tl.zeros((BM, BN), tl.float32) + {value}")
        kernel.lines.append(f"if RAGGED != 0:\n        {name} = tl.where({when.live}, {name}, {old})")
        kernel.store(f"S{i}", when.after, "H", 0, True, name)
        if i == 0:  # the output: batch first, and zero past a row's end
            kernel.store("Y", when.out, "H", 0, True, f"tl.where({when.live}, {name}, 0.0)")
    if joined:
        _hand_on(kernel, "state", "new")


def _finish_backward(kernel: Kernel, stage: int, when: When, joined: bool) -> None:
    """The gradients of the states before the step."""
    passed = kernel.passed
    for i, root in enumerate(passed.roots):
        value = kernel.ask(passed.resolve(root, 0), stage, when)
        name = f"new{i}"
        where = f"OLD{i}" if passed.last else f"D{i}"
        old = kernel.old(where, when.slot, when)
        kernel.lines.append(f"{name} = tl.zeros((BM, BN), tl.float32) + {value}")
        kernel.lines.append(f"if RAGGED != 0:\n        {name} = tl.where({when.live}, {name}, {old})")
        if not joined:
            kernel.store(f"D{i}", when.other, "H", 0, True, name)
    if joined:
        _hand_on(kernel, "gradient", "new")


def _hand_on(kernel: Kernel, op: str, name: str) -> None:
    """What the next step of the same kernel finds as its states, or their gradients."""
    passed = kernel.passed
    for node in _leaves(passed, op):
        text = f"{name}{node.index}"
        if op == "gradient" and node.index == 0:
            kernel.loads.append(f"dy0 = {kernel.load('DY', NOW.out, 'H', 0, True)}")
            kernel.lines.append(f"seed0 = {text} + dy0")
            text = "seed0"
        kernel.known[NOW.prefix, node.number, 0] = text
    if op == "gradient":
        for i in range(len(passed.roots)):
            kernel.incoming[i] = f"{name}{i}"


def _leaves(passed: Pass, op: str) -> list[Node]:
    found: dict[int, Node] = {}
    stack, seen = [*passed.roots, *passed.stored], set()
    while stack:
        node = stack.pop()
        if node.number in seen or node.number in passed.kept:
            continue
        seen.add(node.number)
        if node.op == op:
            found[node.number] = node
        stack.extend(node.args)
    return list(found.values())


def _part(passed: Pass, kernel: Kernel) -> Part:
    stage = passed.last if kernel.name == "between" else int(kernel.name.removeprefix("stage"))
    products = tuple(_products(passed, stage))
    return Part(kernel.name, tuple(kernel.arrays), products, kernel.name == "between", kernel.reduces)


def _function(kernel: Kernel) -> str:
    constants = (f"{c}: tl.constexpr" for c in _CONSTANTS)
    arguments = ", ".join((*kernel.arrays, "LENGTHS", *_SCALARS, "H", *constants))
    opening = [
        "rm = tl.program_id(1) * BM + tl.arange(0, BM)",
        "rn = tl.program_id(0) * BN + tl.arange(0, BN)",
        "row = (rm < B)[:, None]",
        "ok = row & (rn < H)[None, :]",
        "at = (t * B + rm)[:, None].to(tl.int64)",
        "at_p = (p * B + rm)[:, None].to(tl.int64)",
        "out, out_p = (rm * T + t)[:, None].to(tl.int64), (rm * T + p)[:, None].to(tl.int64)",
        "before, after = at + REV * B, at + (1 - REV) * B",
        "before_p, after_p = at_p + REV * B, at_p + (1 - REV) * B",
        "slot = ((n & 1) * B + rm)[:, None].to(tl.int64)",
        "other = ((1 - (n & 1)) * B + rm)[:, None].to(tl.int64)",
        "here, here_p = tl.where(KEEP != 0, at, slot), tl.where(KEEP != 0, at_p, other)",
        "live, live_p = row, row",
        "if RAGGED != 0:",
        "    ends = tl.load(LENGTHS + rm, mask=rm < B, other=0)[:, None]",
        "    live, live_p = t < ends, p < ends",
    ]
    lines = "\n    ".join([*opening, *kernel.loads, *kernel.lines, *kernel.stores])
    plain = ", ".join(f'"{name}"' for name in _SCALARS)
    return f"\n\n@triton.jit(do_not_specialize=[{plain}])\ndef {kernel.name}({arguments}):\n    {lines}\n"
