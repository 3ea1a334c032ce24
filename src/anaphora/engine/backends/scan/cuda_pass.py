"""What the two passes of a unit have in common as CUDA kernels: how a block walks through time.

A block takes COLS columns of a row through time, a thread for each, its states in registers as float32; ``ring.cu`` says how
it reads. Three kernels let chunks of time run in parallel where a unit is affine and its columns are too few to fill a GPU:
``gather`` composes each chunk's steps into one, s → A s + b; ``link`` walks over the chunks; the pass itself then knows
the states each chunk starts from. With one chunk it runs alone, with the order of operations of the loop.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anaphora.engine.backends.expressions import Body
from anaphora.engine.graph import Graph, Node, ancestors
from anaphora.engine.rings import dependent
from anaphora.engine.units import Unit

NUMBERS = ("T", "W", "B", "CT", "NC", "reverse", "keep")  # arguments of every kernel, after its arrays
LINKED = 8  # chunks whose sums are read at a time


@dataclass(frozen=True)
class Kernel:
    """The names of a kernel's arrays in order, and what it reads at every step."""

    name: str
    arrays: list[str]
    streams: tuple[bool, ...]  # read through the ring: whether a stream's numbers are always float32


@dataclass(frozen=True)
class Stream:
    """Something read at every step: a leaf of the graph."""

    leaf: int
    array: str
    stride: str  # of a row
    start: str  # the first column
    before: bool = False  # the row of the step before
    single: bool = False  # float32 whatever the others are


class Pass(ABC):
    """What the two passes have in common: ``updates[i]`` is the next value of carried number i."""

    name: str
    backwards: bool
    leaf_kind: str

    def __init__(self, unit: Unit, updates: Sequence[Node]):
        self.unit, self.updates = unit, updates
        self.count = len(unit.states)

    def leaf(self, kind: str, index: int) -> int:
        return self.unit.graph.node(kind, (), self.unit.width, index).number

    # ------------------------------------------------------------------ what subclasses say
    @abstractmethod
    def roots(self) -> list[Node]:
        """All values of a step."""

    @abstractmethod
    def streams(self) -> list[Stream]:
        """What is read at every step."""

    @abstractmethod
    def at_start(self) -> list[str]:
        """Statements before the loop: pointers to what the first step writes, and sums."""

    @abstractmethod
    def at_step(self, body: Body) -> list[str]:
        """Statements after all values of a step: its stores and sums."""

    @abstractmethod
    def at_end(self) -> list[str]:
        """Statements after the loop."""

    @abstractmethod
    def outset(self, k: int) -> str:
        """Where carried number k starts, of all chunks in the first of the pass."""

    @abstractmethod
    def corrected(self, stream: Stream, value: str) -> str:
        """What was read for step t, put right."""

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

    def _begins(self) -> str:
        """Whether this chunk is the first of the pass in which the row has steps."""
        if not self.backwards:
            return "c == 0"
        return "(LEN > lo && LEN <= lo + CT) || (LEN == 0 && c == 0)"

    def _walk(self) -> tuple[Kernel, str]:
        start = []
        for k in range(self.count):
            first = f"ok && begins ? {self.outset(k)} : 0.f"
            linked = k in self.unit.carried and self.parallel
            start.append(f"R s{k} = {f'NC > 1 ? (ok ? C{k}[piece] : 0.f) : ' if linked else ''}({first});")
        streams = self._used(self.streams(), self.roots())
        body, once = self._body(streams, self.roots())
        new = [body.value(u) for u in self.updates]
        step = self.at_step(body)
        lines = [*body.lines, *step, *(f"s{k} = {v};" for k, v in enumerate(new))]
        inside = [
            *self._opening(),
            *once,
            *start,
            *self.at_start(),
            *self._loop(streams, lines),
            *self.at_end(),
        ]
        return self._finished(self.name, inside, streams)

    def _gather(self) -> tuple[Kernel, str]:
        carried = self.unit.carried
        pairs = [(i, j) for i in carried for j in carried]
        updates = [self.updates[i] for i in carried]
        rates = split_affine(self.unit.graph, updates, self.leaf_kind, carried)
        roots = [*updates, *rates.values()]
        start = [
            f"R s{k} = {'0.f' if k in carried else f'ok && begins ? {self.outset(k)} : 0.f'};"
            for k in range(self.count)
        ]
        start += [f"R a{i}_{j} = {float(i == j)}f;" for i, j in pairs]
        streams = self._used(self.streams(), roots)
        body, once = self._body(streams, roots)
        new = {k: body.value(self.updates[k]) for k in carried}
        products = []
        for i, j in pairs:
            terms = [f"{body.value(rates[i, k])}*a{k}_{j}" for k in carried if (i, k) in rates]
            products.append(f"const R m{i}_{j} = {' + '.join(terms) or '0.f'};")
        lines = [*body.lines, *products, *(f"s{k} = {v};" for k, v in new.items())]
        lines += [f"a{i}_{j} = m{i}_{j};" for i, j in pairs]
        if self.backwards:  # a gradient that is not carried on is there at the last step only
            lines += [f"s{k} = 0.f;" for k in range(self.count) if k not in carried]
        end = [f"if (ok) S{k}[piece] = s{k};" for k in carried]
        end += [f"if (ok) A{i}_{j}[piece] = a{i}_{j};" for i, j in pairs]
        inside = [*self._opening(), *once, *start, *self._loop(streams, lines), *end]
        return self._finished(f"gather_{self.name}", inside, streams)

    def _link(self) -> tuple[Kernel, str]:
        carried = self.unit.carried
        pairs = [(i, j) for i in carried for j in carried]
        reads = [(f"a{i}_{j}", f"A{i}_{j}") for i, j in pairs] + [(f"b{k}", f"S{k}") for k in carried]
        lines = [*self._opening(rows=False), "if (!ok) return;"]
        lines += [f"R s{k} = {self.outset(k)};" for k in carried]
        many = max(2, LINKED // len(pairs))
        lines.append(f"for (L q = 0; q < NC; q += {many}) {{")
        lines += [f"R {name}[{many}];" for name, _ in reads] + [f"L place[{many}];"]
        turn = "NC - 1 - q - r" if self.backwards else "q + r"
        lines.append(
            f"UNROLL for (int r = 0; r < {many}; r++) if (q + r < NC) {{ place[r] = (({turn})*B + b)*W + col;"
        )
        lines += [f"{name}[r] = {array}[place[r]];" for name, array in reads]
        lines += ["}", f"UNROLL for (int r = 0; r < {many}; r++) if (q + r < NC) {{"]
        lines += [f"C{k}[place[r]] = s{k};" for k in carried]
        for i in carried:
            lines.append(f"const R n{i} = {' + '.join(f'a{i}_{j}[r]*s{j}' for j in carried)} + b{i}[r];")
        lines += [f"s{i} = n{i};" for i in carried] + ["}", "}"]
        return self._finished(f"link_{self.name}", lines, [])

    # ------------------------------------------------------------------ parts of a kernel
    def _opening(self, rows: bool = True) -> list[str]:
        unit = self.unit
        lines = [
            "const L blocks = (W + COLS - 1)/COLS, c = blockIdx.x/(blocks*B), rest = blockIdx.x%(blocks*B);",
            "const L b = rest/blocks, first = rest%blocks*COLS, col = first + threadIdx.x;",
            "const bool ok = col < W;",
            "const L LEN = lengths ? lengths[b] : T;",
            "const L lo = c*CT, hi = lo + CT < LEN ? lo + CT : LEN, n = hi > lo ? hi - lo : 0;",
            f"const bool begins = {self._begins()};",
            "const L base = b*T, own = b*W + col, piece = (c*B + b)*W + col;",
        ]
        if rows:
            lines += [
                f"const int sign = (reverse != 0) != {'true' if self.backwards else 'false'} ? -1 : 1;",
                f"const L t1 = {'hi - 1' if self.backwards else 'lo'}, at1 = base + (reverse ? LEN - 1 - t1 : t1);",
            ]
            lines += [f"const R vector{i} = ok ? tof(V{i}[col]) : 0.f;" for i in range(len(unit.vectors))]
            lines += [f"const R row{i} = ok ? tof(R{i}[own]) : 0.f;" for i in range(len(unit.rows))]
        return lines

    @staticmethod
    def _used(streams: Sequence[Stream], roots: Sequence[Node]) -> list[Stream]:
        found = {n.number for n in ancestors(roots)}
        return [s for s in streams if s.leaf in found]

    def _body(self, streams: Sequence[Stream], roots: Sequence[Node]) -> tuple[Body, list[str]]:
        """What computes the values of a step, and statements for those that are the same at every step."""
        unit = self.unit
        still = {self.leaf("vector", i): f"vector{i}" for i in range(len(unit.vectors))}
        still |= {self.leaf("row", i): f"row{i}" for i in range(len(unit.rows))}
        once, known = Body(still), set(still)
        for node in ancestors(roots):
            if node.op == "const" or (node.args and all(a.number in known for a in node.args)):
                known.add(node.number)
                if node.op != "const":
                    once.value(node)
        leaves = still | {self.leaf(self.leaf_kind, k): f"s{k}" for k in range(self.count)}
        for k, stream in enumerate(streams):
            leaves[stream.leaf] = self.corrected(stream, f"number(q{k})")
        return Body(leaves, once.names), once.lines

    def _loop(self, streams: Sequence[Stream], lines: Sequence[str]) -> list[str]:
        """Steps lo … hi in the order of the pass, in groups."""
        toward = "-" if self.backwards else "+"
        kinds = ["float" if s.single else "elem" for s in streams]
        places, sizes = [], "0"  # where each stream's part of the shared memory begins
        for kind in kinds:
            places.append(f"({kind}*)(memory + STAGES*STEPS*COLS*({sizes}))")
            sizes += f" + (int)sizeof({kind})"
        found = [
            "extern __shared__ __align__(16) char memory[];",
        ]
        for k, (kind, place, s) in enumerate(zip(kinds, places, streams, strict=True)):
            at = "(at1 + (reverse ? 1 : -1))" if s.before else "at1"
            start = f"{s.array} + {at}*{s.stride} + {s.start} + first"
            found.append(f"Stream<{kind}> stream{k}({place}, {start}, sign*{s.stride}, W - first);")
        found += [
            "int left = (int)n, coming = (int)n, filled = 0, slot = 0;",
            "int t = (int)t1, far = t; (void)far;",
            "auto fetch = [&]() {",
            "const int count = coming < STEPS ? coming : STEPS;",
            "if (count > 0) {",
            *(
                f"stream{k}.next(filled, {'(far < count ? far : count)' if s.before else 'count'});"
                for k, s in enumerate(streams)
            ),
            f"}} coming -= STEPS; far {toward}= STEPS; filled = filled + 1 == STAGES ? 0 : filled + 1;",
            "commit();",
            "};",
            "UNROLL for (int g = 0; g < STAGES - 1; g++) fetch();",
            "for (; left > 0; left -= STEPS) {",
            "await_group();",
            "__syncthreads();",
            "fetch();",
        ]
        for k, (kind, place) in enumerate(zip(kinds, places, strict=True)):
            found.append(f"const {kind}*const ring{k} = {place} + slot*STEPS*COLS + threadIdx.x;")
        each = range(len(streams))
        taken = "".join(f", {kind} q{k}" for k, kind in enumerate(kinds))
        found += [
            f"auto step = [&](int i{taken}) {{",
            *lines,
            f"t {toward}= 1;",
            "};",
            "if (left >= STEPS) {",  # everything is read before the first store, which the compiler would not pass
            *(f"{kind} p{k}[STEPS];" for k, kind in enumerate(kinds)),
            *(f"UNROLL for (int i = 0; i < STEPS; i++) p{k}[i] = ring{k}[i*COLS];" for k in each),
            f"UNROLL for (int i = 0; i < STEPS; i++) step(i{''.join(f', p{k}[i]' for k in each)});",
            "}",
            f"else for (int i = 0; i < left; i++) step(i{''.join(f', ring{k}[i*COLS]' for k in each)});",
            "slot = slot + 1 == STAGES ? 0 : slot + 1;",
            "}",
        ]
        return found

    def _finished(self, name: str, inside: Sequence[str], streams: Sequence[Stream]) -> tuple[Kernel, str]:
        text = "\n".join(inside)
        words = set(re.findall(r"\w+", text))
        arrays = [a for a in self._arrays() if a in words]
        single = {s.array for s in streams if s.single}
        taken = [f"{self._type(a, single)}{a}" for a in arrays]
        numbers = [*NUMBERS, *(f"{n}{k}" for k in range(len(self.unit.sequences)) for n in ("wide", "from"))]
        taken += ["const L*__restrict__ lengths", *(f"L {n}" for n in numbers)]
        head = f'extern "C" __global__ void __launch_bounds__(COLS) {name}({", ".join(taken)}) {{\n'
        return Kernel(name, arrays, tuple(s.single for s in streams)), f"{head}{text}\n}}\n"

    def _type(self, array: str, single: set[str]) -> str:
        kind = array.rstrip("0123456789_")
        number = (
            "float" if kind in ("C", "S", "A", "DV") or array in single or array in self.singles else "elem"
        )
        written = kind in self.written
        return f"{number}*" if written else f"const {number}*__restrict__ "

    @property
    def singles(self) -> set[str]:
        """Arrays that are float32 whatever the others are: states kept for the backward pass alone."""
        return {f"K{i}" for i in self.unit.remembered if self.unit.exported_as(i) is None}

    @property
    def written(self) -> tuple[str, ...]:
        """Kinds of arrays that kernels of the pass write to."""
        return ("DX", "DV", "DI", "C", "S", "A") if self.backwards else ("E", "L", "K", "C", "S", "A")

    def _arrays(self) -> list[str]:
        """All arrays any of the kernels may take."""
        unit, n = self.unit, self.count
        kinds = [("X", len(unit.sequences)), ("V", len(unit.vectors)), ("R", len(unit.rows)), ("I", n)]
        kinds += [("E", len(unit.exports)), ("L", n), ("K", n), ("DE", len(unit.exports)), ("DL", n)]
        kinds += [("DX", len(unit.sequences)), ("DV", len(unit.vectors)), ("DI", n), ("C", n), ("S", n)]
        return [f"{k}{i}" for k, many in kinds for i in range(many)] + [
            f"A{i}_{j}" for i in range(n) for j in range(n)
        ]


# ----------------------------------------------------------------------
# The rates of an affine update: what each leaf is multiplied by.
def split_affine(
    graph: Graph, updates: Sequence[Node], kind: str, indices: Sequence[int]
) -> dict[tuple[int, int], Node]:
    """∂ update i / ∂ leaf j of a kind, for updates that are affine in these leaves; ``updates`` belong to ``indices``.

    Pairs whose rate is zero are left out.
    """
    own = dependent(updates, {(kind, i) for i in indices})
    f, zero = graph.pointwise, graph.const(0)
    rates: dict[int, dict[int, Node]] = {}  # by node, by leaf
    for node in ancestors(updates):
        if node.number not in own:
            continue
        parts = [rates.get(a.number, {}) for a in node.args]
        reads = sorted({j for part in parts for j in part})
        if not node.args:
            rates[node.number] = {node.index: graph.const(1)}
        elif node.op in ("add", "sub"):
            found = {}
            for j in reads:
                a, b = parts[0].get(j), parts[1].get(j)
                if a is None and b is not None:
                    found[j] = b if node.op == "add" else f("neg", b)
                elif a is not None:
                    found[j] = a if b is None else f(node.op, a, b)
            rates[node.number] = found
        elif node.op == "neg":
            rates[node.number] = {j: f("neg", parts[0][j]) for j in reads}
        elif node.op in ("mul", "div"):
            which = 0 if parts[0] else 1
            factor = node.args[1 - which]
            rates[node.number] = {j: f(node.op, parts[which][j], factor) for j in reads}
        elif node.op == "select":
            _, one, other = parts
            given = {j: (one.get(j, zero), other.get(j, zero)) for j in reads}
            rates[node.number] = {j: f("select", node.args[0], *pair) for j, pair in given.items()}
        else:
            assert node.op == "spread"
            rates[node.number] = parts[0]
    return {
        (i, j): rate
        for i, update in zip(indices, updates, strict=True)
        for j, rate in rates.get(update.number, {}).items()
    }
