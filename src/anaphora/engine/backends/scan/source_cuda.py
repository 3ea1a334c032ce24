"""Units as CUDA kernels: the forward pass, and the backward pass, which is affine in the gradients of the states where the
forward pass is affine in the states. `cuda_pass` says how both walk through time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anaphora.engine.backends.c.frame import laid_out
from anaphora.engine.backends.expressions import NUMBERS, Body
from anaphora.engine.backends.scan.cuda_pass import Kernel, Pass, Stream
from anaphora.engine.graph import Node
from anaphora.engine.units import Unit

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
