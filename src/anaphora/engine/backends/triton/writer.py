"""The text of one kernel: values, column by column, as lines of Triton, each after those it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from anaphora.engine.backends.expressions import triton_constant, triton_expression
from anaphora.engine.graph import REDUCTIONS, Node, until
from anaphora.engine.ops import POINTWISE
from anaphora.engine.plan import LOOP, Plan, backward_schedule, forward_schedule, tiers

KEPT = 2  # the value of RAGGED where a row that is not live keeps what it has; 1: it has nothing to keep


@dataclass(frozen=True)
class When:
    """The names of a step's places in a kernel: its time, its slots of the states, its place in scratch memory."""

    prefix: str  # of its values
    time: str  # (BM, 1): row of (T, B)
    out: str  # (BM, 1): row of (B, T), as outputs and their gradients lie outside
    before: str  # of the states before it
    after: str
    slot: str  # of scratch memory (2, B)
    other: str  # the other slot
    here: str  # of stored values: at their time when all are kept, in scratch memory otherwise
    live: str


NOW = When("a", "at", "out", "before", "after", "slot", "other", "here", "live")
EARLIER = When(
    "b", "at_p", "out_p", "before_p", "after_p", "other", "slot", "here_p", "live_p"
)  # the step before in the loop


@dataclass
class Kernel:
    """A kernel being written: first it reads all it needs, so that it waits for memory once, and last it stores."""

    passed: Pass
    name: str
    loads: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    arrays: list[str] = field(default_factory=list)  # what it is given, in order
    known: dict[tuple[str, int, int], str] = field(default_factory=dict)
    crossing: dict[tuple[int, int], Item] = field(default_factory=dict)  # read from earlier stages
    reduces: bool = False
    incoming: dict[int, str] = field(default_factory=dict)  # gradients handed on within the kernel

    def array(self, name: str) -> str:
        if name not in self.arrays:
            self.arrays.append(name)
        return name

    def load(self, name: str, rows: str, width: str, chunk: int, wide: bool, mask: str = "") -> str:
        """Read some columns, also of rows that have ended: to look at the lengths first would take longer than reading."""
        column = "" if not wide else f" + {chunk} * H + rn" if chunk else " + rn"
        mask = mask or ("ok" if wide else "row")
        return (
            f"tl.load({self.array(name)} + {rows} * {width}{column}, mask={mask}, other=0.0).to(tl.float32)"
        )

    def old(self, name: str, rows: str, when: When) -> str:
        """What a row that is not live keeps: zero, or what lies in memory where ``RAGGED`` is ``KEPT``.

        It is read for live rows too: to wait for the lengths first would take longer than reading.
        """
        found = f"old_{when.prefix}{name}"
        line = f"{found} = {self.load(name, rows, 'H', 0, True, f'ok & (RAGGED == {KEPT})')}"
        if line not in self.loads:
            self.loads.append(line)
        return found

    def store(
        self, name: str, rows: str, width: str, chunk: int, wide: bool, value: str, which: str = ""
    ) -> None:
        column = "" if not wide else f" + {chunk} * H + rn" if chunk else " + rn"
        shape, mask = ("(BM, BN)", "ok" + which) if wide else ("(BM, 1)", "row" + which)
        whole = f"(tl.zeros({shape}, tl.float32) + {value}).to({name}.dtype.element_ty)"
        self.stores.append(f"tl.store({self.array(name)} + {rows} * {width}{column}, {whole}, mask={mask})")

    def ask(self, item: Item, stage: int, when: When) -> str:
        """The name of a value at some step, computed in this kernel or read."""
        node, chunk = item
        if node.op == "const":
            return triton_constant(node.value)
        key = (when.prefix, *item.key)
        if key not in self.known:
            text = self._text(item, stage, when)
            name = f"{when.prefix}{node.number}_{chunk}".replace("-", "w")
            read = text.startswith(("tl.load(", "total("))
            (self.loads if read else self.lines).append(f"{name} = {text}")
            self.known[key] = name
        return self.known[key]

    def _text(self, item: Item, stage: int, when: When) -> str:
        node, chunk = item
        given, wide = self.passed, node.width > 1
        if given.is_array(node):
            return self._read(node, chunk, when)
        if given.stage(node) < stage:
            self.crossing[item.key] = item
            return self.load(f"C{name_of(item)}", when.slot, "H" if wide else "1", 0, wide)
        if node.op == "gradient":
            text = self.load(f"D{node.index}", when.slot, "H", 0, True)
            return f"{text} + {self.load('DY', when.out, 'H', 0, True)}" if node.index == 0 else text
        if node.op == "product":
            width, column = width_of(given, node), f"{chunk} * H + rn" if chunk else "rn"
            array = self.array(f"P{number_of(node)}")
            return f"total({array}, rm[:, None] * {width} + {column}, B * {width}, ok, PARTS)"
        if node.op in REDUCTIONS:
            return self._reduction(node, stage, when)
        args = [self.ask(given.resolve(a, 0 if a.width == 1 else chunk), stage, when) for a in node.args]
        return triton_expression(node.op, args)

    def _read(self, node: Node, chunk: int, when: When) -> str:
        given, wide = self.passed, node.width > 1
        width = width_of(given, node)
        if node.number in given.kept:
            return self.load(f"K{number_of(node)}", when.time, width, chunk, wide)
        if node.op == "state":
            return self.load(f"S{node.index}", when.before, "H", 0, True)
        if node.op == "row":
            return self.load(f"R{node.index}", "rm[:, None]", width, chunk, wide)
        if node.op == "vector":
            if not wide:
                return f"tl.load({self.array(f'V{node.index}')}).to(tl.float32)"
            column = "rn" if not chunk else f"{chunk} * H + rn"
            return f"tl.load({self.array(f'V{node.index}')} + {column}, mask=rn < H, other=0.0).to(tl.float32)[None, :]"
        name = f"X{node.index}" if node.op == "step" else f"A{number_of(node)}"
        return self.load(name, when.time, width, chunk, wide)

    def _reduction(self, node: Node, stage: int, when: When) -> str:
        self.reduces = True
        inner, given = node.args[0], self.passed
        parts = [self.ask(given.resolve(inner, c), stage, when) for c in range(given.chunks(inner))]
        empty = "0.0" if node.op == "sum" else "float('-inf')"
        call = "row_sum" if node.op == "sum" else "row_max"
        whole = "tl.zeros((BM, BN), tl.float32)"
        found = [f"{call}(tl.where(rn[None, :] < H, {whole} + {p}, {empty}))" for p in parts]
        if node.op == "sum":
            return " + ".join(found)
        text = found[0]
        for more in found[1:]:
            text = triton_expression("max", [text, more])
        return text


def number_of(node: Node) -> str:
    return str(node.number).replace("-", "w")


def name_of(item: Item) -> str:
    return f"{item.node.number}_{item.chunk}".replace("-", "w")


def width_of(given: Pass, node: Node) -> str:
    count = given.chunks(node)
    return "1" if node.width == 1 else "H" if count == 1 else f"({count} * H)"


# ----------------------------------------------------------------------
# A pass of a plan cut into stages: what one kernel can compute of a step before it has to wait for the others.
#
# A kernel computes some columns of some rows. A product needs whole rows of what it multiplies, so where that is itself
# computed within the step a new stage begins. All values are as wide as the state, or a multiple of it (four gates are
# four *chunks*), or one number wide; whatever is not is left to another back end.
class CannotGenerate(Exception):  # noqa: N818 (says what happened)
    """The step has a shape these kernels do not know; the text says which."""


class Item(NamedTuple):
    """Columns ``chunk·H … (chunk+1)·H`` of a value; the whole of one that is one number wide."""

    node: Node
    chunk: int

    @property
    def key(self) -> tuple[int, int]:
        return self.node.number, self.chunk


@dataclass
class Pass:
    """One pass: its roots (new states, or gradients of the old ones) and what it stores of every step."""

    unit: int  # the width of the states, H
    backward: bool
    roots: list[Node]
    stored: list[Node]  # wanted of every step, or multiplied by a later stage
    ahead: list[Node]  # known for all steps before the loop; torch computes them
    kept: frozenset[int]  # values of the forward pass, by number
    level: dict[int, int] = field(default_factory=dict)  # tier of each node
    stages: dict[int, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The number of the last stage; the first is 0."""
        return max(self.stages.values(), default=0)

    def stage(self, node: Node) -> int:
        return self.stages.get(node.number, 0)

    def is_array(self, node: Node) -> bool:
        """Whether the value lies in memory before the loop begins."""
        if node.number in self.kept or node.op in ("step", "row", "vector"):
            return True
        if node.op == "state":
            return not self.backward
        return self.level[node.number] < LOOP and (node.op == "product" or node.op in REDUCTIONS)

    def resolve(self, node: Node, chunk: int) -> Item:
        """The value behind slices, concatenations and repetitions."""
        while node.number not in self.kept:
            if node.op == "slice":
                self._whole(node.index)
                node, chunk = node.args[0], chunk + node.index // self.unit
            elif node.op == "spread":
                node = node.args[0]
            elif node.op == "cat":
                at = 0
                for part in node.args:
                    count = self.chunks(part)
                    if at <= chunk < at + count:
                        node, chunk = part, chunk - at
                        break
                    at += count
            else:
                break
        return Item(node, 0 if node.width == 1 and self.unit > 1 else chunk)

    def chunks(self, node: Node) -> int:
        if node.width == 1:
            return 1
        self._whole(node.width)
        return node.width // self.unit

    def _whole(self, width: int) -> None:
        if width % self.unit:
            raise CannotGenerate(f"a value {width} wide, which is no multiple of the state's {self.unit}")


def forward_stages(plan: Plan) -> Pass:
    """The forward pass; raises :class:`CannotGenerate`."""
    schedule = forward_schedule(plan)
    return _make(plan, schedule.loop, [n for n in schedule.collected if n.op != "state"], frozenset(), False)


def backward_stages(plan: Plan) -> Pass:
    """The backward pass; raises :class:`CannotGenerate`."""
    schedule = backward_schedule(plan)
    known = frozenset(n.number for n in (*plan.keep, *(source for _, source in plan.operands)))
    return _make(plan, schedule.loop, schedule.collected, known, True)


def _make(plan: Plan, roots: list[Node], wanted: list[Node], kept: frozenset[int], backward: bool) -> Pass:
    widths = set(plan.state_widths)
    if len(widths) != 1 or widths == {1}:
        raise CannotGenerate("states of different widths, or one number wide")
    everything = until([*roots, *wanted], kept)
    level = tiers(everything, dict.fromkeys(kept, LOOP - 1))
    stored = [n for n in wanted if level[n.number] == LOOP]
    made = Pass(widths.pop(), backward, roots, stored, [], kept, level)
    arrays = {n.number for n in everything if made.is_array(n)}
    read: dict[int, Node] = {}
    for node in until([*roots, *stored], {*kept, *arrays}):
        made.chunks(node)
        if node.number in arrays or node.op in ("const", "gradient"):
            read[node.number] = node
            continue
        _place(made, node)
    ahead = [n for n in read.values() if n.op == "product" or n.op in REDUCTIONS]
    made.ahead = [n for n in ahead if n.number not in kept]
    made.ahead += [n for n in wanted if level[n.number] < LOOP and all(n is not a for a in ahead)]
    return made


def _place(made: Pass, node: Node) -> None:
    """Say in which stage a value of the loop is computed."""
    if node.op not in POINTWISE | REDUCTIONS | {"product", "slice", "cat", "spread"}:
        raise CannotGenerate(f"the operation {node.op}")
    stage = max((made.stage(a) for a in node.args), default=0)
    operand = node.args[0]
    if node.op == "product" and (made.backward or operand.op != "state"):
        stage += 1
        if all(operand is not n for n in made.stored):
            made.stored.append(operand)
    made.stages[node.number] = stage
