"""Units as C: for each row and block of columns a loop over time, the states at hand, everything between products fused.

A column is computed by the operations of the plan in their order, so its bits are those of the ``c`` backend and of single
steps. Rows and blocks of columns are dealt to threads; neither changes a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anaphora.engine.backends.c.frame import laid_out
from anaphora.engine.backends.c.source import prelude
from anaphora.engine.backends.expressions import NUMBERS, Body
from anaphora.engine.backends.scan.cuda_pass import Kernel, Pass, Stream
from anaphora.engine.derive import Derivative
from anaphora.engine.graph import Node
from anaphora.engine.units import Unit

MULTIPLY = Path(__file__).with_name("multiply.c")


@dataclass(frozen=True)
class UnitProgram:
    """The pointers of a unit's two functions, in order, without the rows' lengths, which come first."""

    forward: list[str]
    backward: list[str]


def products_source(double: bool) -> str:
    """The program of products over all steps."""
    return prelude(double) + MULTIPLY.read_text()


def units_source(units: Sequence[Unit], double: bool) -> tuple[str, list[UnitProgram]]:
    """The program of some units; equal structures give equal text, whatever their sizes."""
    text, programs = [prelude(double)], []
    for k, unit in enumerate(units):
        forward, forward_text = _forward(unit, k)
        backward, backward_text = _backward(unit, k)
        text += [forward_text, backward_text]
        programs.append(UnitProgram(forward, backward))
    return "".join(text), programs


def _leaves(unit: Unit, kind: str, count: int, pointer: str) -> dict[int, str]:
    return {unit.graph.node(kind, (), unit.width, i).number: f"{pointer}{i}[j]" for i in range(count)}


def _common(unit: Unit) -> tuple[list[str], list[str], dict[int, str]]:
    """Pointers that both functions take, row pointers inside the loop, and what the leaves are called."""
    n = len(unit.sequences)
    arrays = [f"sequence{k}" for k in range(n)]
    arrays += [f"vector{i}" for i in range(len(unit.vectors))] + [f"row{i}" for i in range(len(unit.rows))]
    arrays += [f"init{i}" for i in range(len(unit.states))]
    inside = [f"const R *const x{k} = sequence{k} + at*n[{6 + 2 * k}] + n[{7 + 2 * k}];" for k in range(n)]
    places = _leaves(unit, "step", n, "x")
    places |= _leaves(unit, "vector", len(unit.vectors), "vector")
    places |= _leaves(unit, "row", len(unit.rows), "mask")
    return arrays, inside, places


def _opening(name: str, arrays: Sequence[str]) -> str:
    declared = "\n".join(f"R *const {array} = p[{1 + i}];" for i, array in enumerate(arrays))
    return f"""
static int {name}_part(const L *n, void *const *p, L part) {{
/* n: time, batch, whether in reverse, threads, columns of a block, width, then width and first column of each sequence */
const L T = n[0], B = n[1], reverse = n[2], threads = n[3], some = n[4], W = n[5];
const L *const length = p[0];
{declared}
const L blocks = (W + some - 1) / some;
for (L piece = part; piece < B * blocks; piece += threads) {{
const L b = piece / blocks, first = piece % blocks * some, end = first + some < W ? first + some : W;
const L LEN = length[b], wide = (end - first) * (L)sizeof(R);
"""


def _closing(name: str) -> str:
    return f"}}\nreturn 0;\n}}\nint {name}(const L *n, void *const *p) {{ return run_all(n, p, n[3], {name}_part); }}\n"


def _loop(lines: Sequence[str]) -> str:
    body = "\n".join(lines)
    return f'_Pragma("omp simd")\nfor (L j = first; j < end; j++) {{\n{body}\n}}\n'


def _forward(unit: Unit, k: int) -> tuple[list[str], str]:
    arrays, inside, places = _common(unit)
    count = len(unit.states)
    kept = [i for i in unit.remembered if unit.exported_as(i) is None]
    arrays += [f"last{i}" for i in range(count)] + [f"export{e}" for e in range(len(unit.exports))]
    arrays += [f"kept{i}" for i in kept]
    places |= _leaves(unit, "state", count, "s")
    rows = "".join(f"const R *const mask{i} = row{i} + b*W;\n" for i in range(len(unit.rows)))
    start = "".join(
        f"R *const s{i} = last{i} + b*W;\nmemcpy(s{i} + first, init{i} + b*W + first, wide);\n"
        for i in range(count)
    )
    inside += [f"R *const e{e} = export{e} + at*W;" for e in range(len(unit.exports))]
    body = Body(places)
    values = [body.value(o) for o in unit.outputs]
    stored = [body.value(e) for e in unit.exports]
    body.lines += [f"e{e}[j] = {v};" for e, v in enumerate(stored)]
    body.lines += [f"s{i}[j] = {v};" for i, v in enumerate(values)]
    keep = "".join(f"if (kept{i}) memcpy(kept{i} + at*W + first, s{i} + first, wide);\n" for i in kept)
    clear = "".join(f"memset(export{e} + (b*T + t)*W + first, 0, wide);\n" for e in range(len(unit.exports)))
    pointers = "\n".join(inside)
    text = f"""{_opening(f"forward{k}", arrays)}{rows}{start}for (L t = 0; t < LEN; t++) {{
const L at = b*T + (reverse ? LEN - 1 - t : t);
{pointers}
{_loop(body.lines)}{keep}}}
for (L t = LEN; t < T; t++) {{
{clear}}}
{_closing(f"forward{k}")}"""
    return arrays, laid_out(text)


def _backward(unit: Unit, k: int) -> tuple[list[str], str]:
    arrays, inside, places = _common(unit)
    count = len(unit.states)
    arrays += [f"kept{i}" for i in unit.remembered]
    arrays += [f"dexport{e}" for e in range(len(unit.exports))] + [f"dlast{i}" for i in range(count)]
    arrays += [f"dsequence{s}" for s in unit.backward.steps] + [f"dvector{i}" for i in unit.backward.vectors]
    arrays += [f"dinit{i}" for i in range(count)] + ["nothing"]
    places |= _leaves(unit, "state", count, "old")
    for g in range(count + len(unit.exports)):
        number = unit.graph.node("gradient", (), unit.width, g).number
        places[number] = f"d{g}[j]" if g < count else f"g{g - count}[j]"
    rows = "".join(f"const R *const mask{i} = row{i} + b*W;\n" for i in range(len(unit.rows)))
    start = ""
    for i in range(count):
        start += f"R *const d{i} = dinit{i} + b*W;\nif (dlast{i}) memcpy(d{i} + first, dlast{i} + b*W + first, wide);\n"
        start += f"else memset(d{i} + first, 0, wide);\n"
    for i in unit.backward.vectors:
        start += f"R *const total{i} = dvector{i} + b*W;\nmemset(total{i} + first, 0, wide);\n"
    inside += [
        f"const R *const old{i} = t ? kept{i} + (reverse ? at + 1 : at - 1)*W : init{i} + b*W;"
        for i in unit.remembered
    ]
    inside += [
        f"const R *const g{e} = dexport{e} ? dexport{e} + at*W : nothing;" for e in range(len(unit.exports))
    ]
    inside += [
        f"R *const y{s} = dsequence{s} + at*n[{6 + 2 * s}] + n[{7 + 2 * s}];" for s in unit.backward.steps
    ]
    step = _loop(_gradient_lines(unit.backward, unit.backward, places))
    if unit.silent is not None:
        loud = [f"dexport{e}" for e in range(len(unit.exports))]
        loud += [f"(t == LEN - 1 && dlast{i})" for i in range(count) if i not in unit.carried]
        quiet = _loop(_gradient_lines(unit.silent, unit.backward, places))
        step = f"if ({' || '.join(loud)}) {{\n{step}}} else {{\n{quiet}}}\n"
    clear = "".join(
        f"memset(dsequence{s} + (b*T + t)*n[{6 + 2 * s}] + n[{7 + 2 * s}] + first, 0, wide);\n"
        for s in unit.backward.steps
    )
    pointers = "\n".join(inside)
    text = f"""{_opening(f"backward{k}", arrays)}{rows}{start}for (L t = LEN - 1; t >= 0; t--) {{
const L at = b*T + (reverse ? LEN - 1 - t : t);
{pointers}
{step}}}
for (L t = LEN; t < T; t++) {{
{clear}}}
{_closing(f"backward{k}")}"""
    return arrays, laid_out(text)


def _gradient_lines(d: Derivative, whole: Derivative, places: dict[int, str]) -> list[str]:
    """One step back; what ``d`` has no gradient of, and ``whole`` has, gets none."""
    body = Body(places)
    states = [body.value(g) for g in d.states]
    steps = {s: body.value(d.steps[s]) if s in d.steps else "K(0)" for s in whole.steps}
    vectors = {i: body.value(g) for i, g in d.vectors.items()}
    lines = [f"y{s}[j] = {v};" for s, v in steps.items()]
    lines += [f"total{i}[j] += {v};" for i, v in vectors.items()]
    return [*body.lines, *lines, *(f"d{i}[j] = {v};" for i, v in enumerate(states))]


# ----------------------------------------------------------------------
# Units as CUDA kernels: the forward pass, and the backward pass, which is affine in the gradients of the states where the
# forward pass is affine in the states. `cuda_pass` says how both walk through time.
RING = Path(__file__).with_name("ring.cu")


def steps_of(kernel: Kernel) -> int:
    """Steps of a group that is read at a time: what a thread reads of them lies in its registers."""
    return 32 if len(kernel.streams) <= 2 else 16 if len(kernel.streams) <= 6 else 8


@dataclass(frozen=True)
class Program:
    """The texts of a unit's kernels by name: forward, backward, and gather_… and link_… where chunks can run in parallel."""

    kernels: dict[str, Kernel]
    texts: dict[str, str]

    def source(self, name: str, kind: int, columns: int, stages: int, wide: bool) -> str:
        """One kernel for a number type, threads of a block, groups of the ring, and whether copies are of 16 bytes."""
        sizes = {
            "KIND": kind,
            "FAST": 0,
            "COLS": columns,
            "STEPS": steps_of(self.kernels[name]),
            "STAGES": stages,
            "WIDE": int(wide),
        }
        head = "".join(f"#define {name} {value}\n" for name, value in sizes.items())
        return head + NUMBERS.read_text() + RING.read_text() + self.texts[name]


def generate(unit: Unit) -> Program:
    """The kernels of a unit."""
    program = Program({}, {})
    for made in (_Forward(unit), _Backward(unit)):
        for kernel, text in made.kernels():
            program.kernels[kernel.name] = kernel
            program.texts[kernel.name] = laid_out(text)
    return program


def _sequences(made: Pass) -> list[Stream]:
    count = len(made.unit.sequences)
    return [Stream(made.leaf("step", k), f"X{k}", f"wide{k}", f"from{k}") for k in range(count)]


class _Forward(Pass):
    name, backwards, leaf_kind = "forward", False, "state"

    def __init__(self, unit: Unit):
        super().__init__(unit, unit.outputs)

    def roots(self) -> list[Node]:
        return [*self.unit.outputs, *self.unit.exports]

    def streams(self) -> list[Stream]:
        return _sequences(self)

    def outset(self, k: int) -> str:
        return f"tof(I{k}[own])"

    def corrected(self, stream: Stream, value: str) -> str:
        return value

    def at_start(self) -> list[str]:
        written = [f"E{e}" for e in range(len(self.unit.exports))]
        lines = [f"elem*to{array} = {array} + at1*W + col;" for array in written]
        lines += [f"float*to{array} = keep ? {array} + at1*W + col : nullptr;" for array in self._kept]
        return [*lines, "L ahead = sign*W;", "keep_known(ahead);"]

    @property
    def _kept(self) -> dict[str, int]:
        """Arrays of states that the backward pass reads and nothing else does, and which states these are."""
        unit = self.unit
        return {f"K{k}": k for k in unit.remembered if unit.exported_as(k) is None}

    def at_step(self, body: Body) -> list[str]:
        unit = self.unit
        lines = [f"put(toE{e}, {body.value(node)}, ahead, ok);" for e, node in enumerate(unit.exports)]
        for array, k in self._kept.items():
            lines.append(f"put(to{array}, {body.value(unit.outputs[k])}, ahead, ok && keep);")
        return lines

    def at_end(self) -> list[str]:
        unit = self.unit
        lines = []
        if unit.exports:
            zeros = " ".join(f"E{e}[(base + t)*W + col] = toe(0.f);" for e in range(len(unit.exports)))
            lines.append(f"if (ok) for (L t = LEN > lo ? LEN : lo; t < T && t < lo + CT; t++) {{ {zeros} }}")
        lines.append("const bool last = (LEN > lo && LEN <= lo + CT) || (LEN == 0 && c == 0);")
        return lines + [f"if (ok && last) L{k}[own] = toe(s{k});" for k in range(self.count)]


class _Backward(Pass):
    name, backwards, leaf_kind = "backward", True, "gradient"

    def __init__(self, unit: Unit):
        super().__init__(unit, unit.backward.states)

    def roots(self) -> list[Node]:
        d = self.unit.backward
        return [*d.states, *d.steps.values(), *d.vectors.values()]

    def streams(self) -> list[Stream]:
        unit = self.unit
        found = _sequences(self)
        for k in unit.remembered:
            own = unit.exported_as(k) is None
            found.append(Stream(self.leaf("state", k), f"K{k}", "W", "0", before=True, single=own))
        for e in range(len(unit.exports)):
            found.append(Stream(self.leaf("gradient", self.count + e), f"DE{e}", "W", "0"))
        return found

    def outset(self, k: int) -> str:
        return f"tof(DL{k}[own])"

    def corrected(self, stream: Stream, value: str) -> str:
        return f"(t ? {value} : init{stream.array[1:]})" if stream.before else value

    def _opening(self, rows: bool = True) -> list[str]:
        kept = [f"const R init{k} = ok ? tof(I{k}[own]) : 0.f;" for k in self.unit.remembered if rows]
        return [*super()._opening(rows), *kept]

    def at_start(self) -> list[str]:
        lines = [f"R total{i} = 0.f;" for i in self.unit.backward.vectors]
        for k in self.unit.backward.steps:
            lines.append(f"elem*toDX{k} = DX{k} + at1*wide{k} + from{k} + col; L ahead{k} = sign*wide{k};")
            lines.append(f"keep_known(ahead{k});")
        return lines

    def at_step(self, body: Body) -> list[str]:
        d = self.unit.backward
        lines = [f"put(toDX{k}, {body.value(node)}, ahead{k}, ok);" for k, node in d.steps.items()]
        return lines + [f"total{v} += {body.value(node)};" for v, node in d.vectors.items()]

    def at_end(self) -> list[str]:
        d = self.unit.backward
        lines = []
        if d.steps:
            zeros = " ".join(f"DX{k}[(base + t)*wide{k} + from{k} + col] = toe(0.f);" for k in d.steps)
            lines.append(f"if (ok) for (L t = LEN > lo ? LEN : lo; t < T && t < lo + CT; t++) {{ {zeros} }}")
        lines += [f"if (ok) DV{i}[piece] = total{i};" for i in d.vectors]
        return lines + [f"if (ok && c == 0) DI{k}[own] = toe(s{k});" for k in range(self.count)]
