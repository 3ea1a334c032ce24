"""What the two passes of a unit have in common as Triton kernels: how a program walks through time.

A program takes some columns of a row through time, its states in registers as float32. The steps of a group are read while
those of the group before are computed, so that a program waits for memory once a group. Three kernels let chunks of time run
in parallel where a unit is affine and its columns are too few to fill a GPU: ``gather`` composes each chunk's steps into one,
s → A s + b; ``link`` walks over the chunks; ``walk`` then knows the states each chunk starts from. With one chunk ``walk``
alone runs, with the order of operations of the loop.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anaphora.kernels.recurrence.backends.triton.writer import CALLS, INFIX
from anaphora.kernels.recurrence.front.affine import split_affine
from anaphora.kernels.recurrence.front.graph import Node, ancestors
from anaphora.kernels.recurrence.front.units import Unit

GROUP = 8  # steps that are read at a time, at most
VALUES = 24  # numbers of all steps of a group that a thread holds for each column, about


@dataclass(frozen=True)
class Kernel:
    """The names of a kernel's arrays in order; numbers follow them: see ``_opening``."""

    name: str
    arrays: list[str]


class Values:
    """Lines that compute values; names end in the number of the step."""

    def __init__(self, known: dict[int, str], suffix: str = ""):
        self.names, self.suffix = dict(known), suffix
        self.lines: list[str] = []

    def value(self, root: Node) -> str:
        for node in ancestors([root]):
            if node.number in self.names:
                continue
            if node.op == "const":
                plain = f"({node.value!r})" if math.isfinite(node.value) else f"float('{node.value}')"
                self.names[node.number] = plain
            elif node.op == "spread":
                self.names[node.number] = self.names[node.args[0].number]
            else:
                args = [self.names[a.number] for a in node.args]
                text = (
                    f"{args[0]} {INFIX[node.op]} {args[1]}"
                    if node.op in INFIX
                    else CALLS[node.op].format(*args)
                )
                self.names[node.number] = f"v{node.number}{self.suffix}"
                self.lines.append(f"v{node.number}{self.suffix} = {text}")
        return self.names[root.number]


class Pass(ABC):
    """What the two passes have in common: ``updates[i]`` is the next value of carried number i, leaf ``leaves[i]``."""

    name: str
    backwards: bool

    def __init__(self, unit: Unit):
        self.unit = unit
        self.count = len(unit.states)
        self.updates: list[Node] = []
        self.leaf_kind = "state"

    def leaf(self, kind: str, index: int) -> int:
        return self.unit.graph.node(kind, (), self.unit.width, index).number

    # ------------------------------------------------------------------ what subclasses say
    @abstractmethod
    def reads(self) -> dict[str, tuple[int, str, str, str]]:
        """By name: the leaf, the array, the address of step {t} at {at}, and the mask."""

    @abstractmethod
    def begins(self) -> list[str]:
        """Lines before the loop."""

    @abstractmethod
    def step(self, values: Values, i: str) -> list[str]:
        """Lines after all values of a step: its stores and sums."""

    @abstractmethod
    def ends(self) -> list[str]:
        """Lines after the loop."""

    # ------------------------------------------------------------------ kernels
    def kernels(self) -> Iterable[tuple[Kernel, str]]:
        yield self._walk()
        if self.parallel:
            yield self._gather()
            yield self._link()

    @property
    def parallel(self) -> bool:
        """Whether chunks of time can run side by side: gradients always are linear in those of the next step."""
        return bool(self.unit.carried) and (self.backwards or self.unit.affine)

    @property
    def group(self) -> int:
        size = GROUP
        while size > 2 and size * len(self.reads()) > VALUES:
            size //= 2
        return size

    def _walk(self) -> tuple[Kernel, str]:
        roots = self.roots()
        body = self._loop(roots, [])
        text = "\n".join(f"    {line}" for line in (*self._opening(), *self.begins(), *body, *self.ends()))
        return self._finished(self.name, text)

    def _finished(self, name: str, text: str) -> tuple[Kernel, str]:
        words = set(text.replace("(", " ").replace(")", " ").replace(",", " ").split())
        arrays = [a for a in self.arrays() if a in words]
        numbers = ["LENGTHS", "T", "W", "B", "CT", "NC"]
        numbers += [f"{n}{k}" for k in range(len(self.unit.sequences)) for n in ("wide", "from")]
        modes = ", ".join(f"{m}: tl.constexpr" for m in ("REVERSE", "RAGGED", "CHUNKED", "KEEP", "BN"))
        head = f"@triton.jit\ndef {name}({', '.join([*arrays, *numbers])}, {modes}):\n"
        return Kernel(name, arrays), head + text + "\n"

    def arrays(self) -> list[str]:
        """All arrays any of the kernels may take."""
        unit, n = self.unit, self.count
        kinds = [("X", len(unit.sequences)), ("V", len(unit.vectors)), ("R", len(unit.rows)), ("I", n)]
        kinds += [("E", len(unit.exports)), ("L", n), ("K", n), ("DE", len(unit.exports)), ("DL", n)]
        kinds += [("DX", len(unit.sequences)), ("DV", len(unit.vectors)), ("DI", n), ("C", n), ("S", n)]
        return [f"{k}{i}" for k, many in kinds for i in range(many)] + [
            f"A{i}_{j}" for i in range(n) for j in range(n)
        ]

    def _opening(self) -> list[str]:
        unit = self.unit
        lines = [
            "blocks = tl.cdiv(W, BN)",
            "b = (tl.program_id(0) // blocks).to(tl.int64)",
            "cols = (tl.program_id(0) % blocks) * BN + tl.arange(0, BN)",
            "ok = cols < W",
            "c = tl.program_id(1)",
            "LEN = T",
            "if RAGGED:",
            "    LEN = tl.load(LENGTHS + b).to(tl.int32)",
            "lo = c * CT",
            "hi = tl.minimum(lo + CT, LEN)",
            "base = b * T",
            "own = b * W + cols",
            "piece = (c * B + b) * W + cols",
            "begins = c == 0"
            if not self.backwards
            else "begins = ((LEN > lo) & (LEN <= lo + CT)) | ((LEN == 0) & (c == 0))",
        ]
        lines += [f"vector{i} = {load(f'V{i}', 'cols', 'ok')}" for i in range(len(unit.vectors))]
        lines += [f"row{i} = {load(f'R{i}', 'own', 'ok')}" for i in range(len(unit.rows))]
        return lines

    def roots(self) -> list[Node]:
        return self.updates

    def _once(self, roots: Sequence[Node]) -> tuple[dict[int, str], list[str]]:
        """Values that are the same at every step, and the lines that compute them."""
        unit = self.unit
        known = {self.leaf("vector", i): f"vector{i}" for i in range(len(unit.vectors))}
        known |= {self.leaf("row", i): f"row{i}" for i in range(len(unit.rows))}
        values = Values(known)
        still = set(known)
        for node in ancestors(roots):
            if node.op == "const" or (node.args and all(a.number in still for a in node.args)):
                still.add(node.number)
                if node.op != "const":
                    values.value(node)
        return values.names, values.lines

    def _loop(self, roots: Sequence[Node], composed: Sequence[tuple[int, int]]) -> list[str]:
        """Steps lo … hi in order, in groups; ``composed``: the entries of A that are kept beside the values."""
        once, lines = self._once(roots)
        reads, size = self.reads(), self.group
        first = "lo" if not self.backwards else "hi - 1"
        lines += [line for i in range(size) for line in self._read(reads, i, first)]
        loop = [f"t0 = hi - 1 - g * {size}" if self.backwards else f"t0 = lo + g * {size}"]
        loop += [f"now_{name}_{i} = next_{name}_{i}" for name in reads for i in range(size)]
        ahead = f"t0 {'-' if self.backwards else '+'} {size}"
        loop += [line for i in range(size) for line in self._read(reads, i, f"({ahead})")]
        for i in range(size):
            loop += self._one(roots, once, reads, i, composed)
        return [
            *lines,
            f"for g in range(0, tl.cdiv(tl.maximum(hi - lo, 0), {size})):",
            *(f"    {line}" for line in loop),
        ]

    def _read(self, reads: dict[str, tuple[int, str, str, str]], i: int, start: str) -> list[str]:
        sign = "-" if self.backwards else "+"
        lines = [f"t = {start} {sign} {i}", "at = base + (LEN - 1 - t if REVERSE else t)"]
        for name, (_, array, address, mask) in reads.items():
            lines.append(f"next_{name}_{i} = {load(array, address, mask)}")
        return lines

    def _one(
        self,
        roots: Sequence[Node],
        once: dict[int, str],
        reads: dict[str, tuple[int, str, str, str]],
        i: int,
        composed: Sequence[tuple[int, int]],
    ) -> list[str]:
        sign = "-" if self.backwards else "+"
        lines = [
            f"t = t0 {sign} {i}",
            "at = base + (LEN - 1 - t if REVERSE else t)",
            "live = (t >= lo) & (t < hi)",
        ]
        known = dict(once)
        for name, (leaf, _, _, _) in reads.items():
            known[leaf] = f"now_{name}_{i}"
        lines += self.corrections(known, i)
        known |= {self.leaf(self.leaf_kind, k): f"s{k}" for k in range(self.count)}
        values = Values(known, f"_{i}")
        moved = self.unit.carried if composed else range(self.count)
        new = {k: values.value(self.updates[k]) for k in moved}
        after = self.step(values, str(i)) if not composed else []
        lines += values.lines
        lines += after
        if composed:
            lines += self._composed(values, composed)
        lines += [f"n{k} = tl.where(live, {v}, s{k})" for k, v in new.items()]
        if composed and self.backwards:  # a gradient that is not carried on is there at the last step only
            lines += [f"n{k} = tl.where(live, 0.0, s{k})" for k in range(self.count) if k not in new]
            moved = range(self.count)
        return [*lines, *(f"s{k} = n{k}" for k in moved)]

    def corrections(self, known: dict[int, str], i: int) -> list[str]:
        """Lines that put right what was read for step i."""
        return []

    # ------------------------------------------------------------------ chunks side by side
    def _gather(self) -> tuple[Kernel, str]:
        carried = self.unit.carried
        pairs = [(i, j) for i in carried for j in carried]
        begin = []
        for k in range(self.count):
            zero = "tl.zeros((BN,), tl.float32)"
            begin.append(f"s{k} = {zero}" if k in carried else f"s{k} = {self.outset(k)}")
        begin += [f"a{i}_{j} = tl.full((BN,), {float(i == j)}, tl.float32)" for i, j in pairs]
        end = [f"tl.store(S{k} + piece, s{k}, mask=ok)" for k in carried]
        end += [f"tl.store(A{i}_{j} + piece, a{i}_{j}, mask=ok)" for i, j in pairs]
        body = self._loop([self.updates[i] for i in carried], pairs)
        text = "\n".join(f"    {line}" for line in (*self._opening(), *begin, *body, *end))
        return self._finished(f"gather_{self.name}", text)

    def _composed(self, values: Values, pairs: Sequence[tuple[int, int]]) -> list[str]:
        carried = self.unit.carried
        rates = split_affine(self.unit.graph, [self.updates[i] for i in carried], self.leaf_kind, carried)
        had = len(values.lines)
        text = []
        for i, j in pairs:
            terms = [f"{values.value(rates[i, k])} * a{k}_{j}" for k in carried if (i, k) in rates]
            text.append(f"m{i}_{j} = tl.where(live, {' + '.join(terms) or '0.0'}, a{i}_{j})")
        return [*values.lines[had:], *text, *(f"a{i}_{j} = m{i}_{j}" for i, j in pairs)]

    def _link(self) -> tuple[Kernel, str]:
        carried = self.unit.carried
        pairs = [(i, j) for i in carried for j in carried]
        lines = [line for line in self._opening() if not line.startswith(("vector", "row"))]
        lines += [f"s{k} = {self.outset_of_all(k)}" for k in carried]
        many = max(2, GROUP // max(1, len(pairs)))

        def read(q: int, start: str) -> list[str]:
            found = [f"q = {start} + {q}", f"p = ({'NC - 1 - q' if self.backwards else 'q'}).to(tl.int64)"]
            found.append("at = (p * B + b) * W + cols")
            found += [f"next_a{i}_{j}_{q} = {load(f'A{i}_{j}', 'at', 'ok & (q < NC)')}" for i, j in pairs]
            return found + [f"next_b{k}_{q} = {load(f'S{k}', 'at', 'ok & (q < NC)')}" for k in carried]

        lines += [line for q in range(many) for line in read(q, "0 * NC")]
        loop = [f"now_a{i}_{j}_{q} = next_a{i}_{j}_{q}" for i, j in pairs for q in range(many)]
        loop += [f"now_b{k}_{q} = next_b{k}_{q}" for k in carried for q in range(many)]
        loop += [line for q in range(many) for line in read(q, f"(g + 1) * {many}")]
        for q in range(many):
            loop += [f"q = g * {many} + {q}", f"p = ({'NC - 1 - q' if self.backwards else 'q'}).to(tl.int64)"]
            loop.append("at = (p * B + b) * W + cols")
            loop += [f"tl.store(C{k} + at, s{k}, mask=ok & (q < NC))" for k in carried]
            for i in carried:
                terms = " + ".join(f"now_a{i}_{j}_{q} * s{j}" for j in carried)
                loop.append(f"n{i} = {terms} + now_b{i}_{q}")
            loop += [f"s{i} = n{i}" for i in carried]
        lines += [f"for g in range(0, tl.cdiv(NC, {many})):", *(f"    {line}" for line in loop)]
        return self._finished(f"link_{self.name}", "\n".join(f"    {line}" for line in lines))

    @abstractmethod
    def outset(self, k: int) -> str:
        """Where carried number k starts in this chunk when it is not linked."""

    @abstractmethod
    def outset_of_all(self, k: int) -> str:
        """Where it starts in the first chunk of the pass."""


def load(array: str, address: str, mask: str) -> str:
    return f"tl.load({array} + {address} , mask={mask}, other=0.0).to(tl.float32)"


def store(array: str, address: str, value: str, mask: str) -> str:
    whole = f"(tl.zeros((BN,), tl.float32) + {value}).to({array}.dtype.element_ty)"
    return f"tl.store({array} + {address} , {whole}, mask={mask})"
