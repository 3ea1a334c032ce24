"""The text of one kernel: values, column by column, as lines of Triton, each after those it needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from anaphora.engine.backends.expressions import triton_constant, triton_expression
from anaphora.engine.backends.triton.stages import Item, Pass
from anaphora.engine.graph import REDUCTIONS, Node

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
