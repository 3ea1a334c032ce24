"""Units as Triton kernels: the forward pass, and the backward pass, which is affine in the gradients of the states where the
forward pass is affine in the states. `triton_pass` says how both walk through time.
"""

from __future__ import annotations

from dataclasses import dataclass

from anaphora.kernels.recurrence.backends.scan.triton_pass import Kernel, Pass, Values, load, store
from anaphora.kernels.recurrence.backends.triton.source import TANH
from anaphora.kernels.recurrence.front.graph import Node, ancestors
from anaphora.kernels.recurrence.front.units import Unit

_OPENING = f'''"""Written by anaphora from the equations of a recurrent cell."""

import triton
import triton.language as tl


{TANH}'''


@dataclass(frozen=True)
class Program:
    """A module's text and its kernels; ``gather`` and ``link`` of a pass only where its steps can run in parallel."""

    text: str
    kernels: dict[str, Kernel]  # forward, backward, and gather_… and link_… of each


def generate(unit: Unit) -> Program:
    """The kernels of a unit."""
    texts, kernels = [_OPENING], {}
    for made in (_Forward(unit), _Backward(unit)):
        for kernel, text in made.kernels():
            kernels[kernel.name] = kernel
            texts.append(text)
    return Program("\n\n".join(texts), kernels)


class _Forward(Pass):
    name, backwards = "forward", False

    def __init__(self, unit: Unit):
        super().__init__(unit)
        self.updates = list(unit.outputs)

    def reads(self) -> dict[str, tuple[int, str, str, str]]:
        mask = "ok & (t >= lo) & (t < hi)"
        found = {}
        for k in range(len(self.unit.sequences)):
            found[f"x{k}"] = (self.leaf("step", k), f"X{k}", f"at * wide{k} + from{k} + cols", mask)
        return found

    def roots(self) -> list[Node]:
        return [*self.unit.outputs, *self.unit.exports]

    def outset(self, k: int) -> str:
        return load(f"I{k}", "own", "ok")

    outset_of_all = outset

    def begins(self) -> list[str]:
        lines = []
        for k in range(self.count):
            lines += [f"s{k} = {self.outset(k)}"]
            if k in self.unit.carried and self.parallel:
                lines += ["if CHUNKED:", f"    s{k} = {load(f'C{k}', 'piece', 'ok')}"]
        return lines

    def step(self, values: Values, i: str) -> list[str]:
        unit = self.unit
        stored = [(f"E{e}", values.value(node)) for e, node in enumerate(unit.exports)]
        lines = [store(array, "at * W + cols", value, "ok & live") for array, value in stored]
        kept = [k for k in unit.remembered if unit.exported_as(k) is None]
        if kept:
            lines.append("if KEEP:")
        for k in kept:
            lines.append(f"    {store(f'K{k}', 'at * W + cols', values.value(unit.outputs[k]), 'ok & live')}")
        return lines

    def ends(self) -> list[str]:
        unit = self.unit
        lines = [
            "if RAGGED:",
            "    for t in range(tl.maximum(lo, LEN), tl.minimum(lo + CT, T)):",
            "        at = base + t",
        ]
        lines += [f"        {store(f'E{e}', 'at * W + cols', '0.0', 'ok')}" for e in range(len(unit.exports))]
        if not unit.exports:
            lines = []
        lines.append("last = ((LEN > lo) & (LEN <= lo + CT)) | ((LEN == 0) & (c == 0))")
        return lines + [store(f"L{k}", "own", f"s{k}", "ok & last") for k in range(self.count)]


class _Backward(Pass):
    name, backwards = "backward", True

    def __init__(self, unit: Unit):
        super().__init__(unit)
        self.updates, self.leaf_kind = list(unit.backward.states), "gradient"

    def roots(self) -> list[Node]:
        d = self.unit.backward
        return [*d.states, *d.steps.values(), *d.vectors.values()]

    def reads(self) -> dict[str, tuple[int, str, str, str]]:
        unit, here = self.unit, "ok & (t >= lo) & (t < hi)"
        used = {n.number for n in ancestors(self.roots())}
        found = {}
        for k in range(len(unit.sequences)):
            found[f"x{k}"] = (self.leaf("step", k), f"X{k}", f"at * wide{k} + from{k} + cols", here)
        for k in unit.remembered:
            array = f"K{k}"
            place = "(at + (1 if REVERSE else -1)) * W + cols"
            found[f"old{k}"] = (self.leaf("state", k), array, place, f"{here} & (t > 0)")
        for e in range(len(unit.exports)):
            found[f"g{e}"] = (self.leaf("gradient", self.count + e), f"DE{e}", "at * W + cols", here)
        return {name: read for name, read in found.items() if read[0] in used}

    def corrections(self, known: dict[int, str], i: int) -> list[str]:
        lines = []
        for k in self.unit.remembered:
            if f"old{k}" in self.reads():
                known[self.leaf("state", k)] = f"old{k}_{i}"
                lines.append(f"old{k}_{i} = tl.where(t == 0, init{k}, now_old{k}_{i})")
        return lines

    def outset(self, k: int) -> str:
        return load(f"DL{k}", "own", "ok & begins")

    def outset_of_all(self, k: int) -> str:
        return load(f"DL{k}", "own", "ok")

    def _opening(self) -> list[str]:
        kept = [f"init{k} = {load(f'I{k}', 'own', 'ok')}" for k in self.unit.remembered]
        return [*super()._opening(), *kept]

    def begins(self) -> list[str]:
        lines = []
        for k in range(self.count):
            lines.append(f"s{k} = {self.outset(k)}")
            if k in self.unit.carried and self.parallel:
                lines += ["if CHUNKED:", f"    s{k} = {load(f'C{k}', 'piece', 'ok')}"]
        return lines + [f"total{i} = tl.zeros((BN,), tl.float32)" for i in self.unit.backward.vectors]

    def step(self, values: Values, i: str) -> list[str]:
        d = self.unit.backward
        stores = []
        for k, node in d.steps.items():
            stores.append(store(f"DX{k}", f"at * wide{k} + from{k} + cols", values.value(node), "ok & live"))
        sums = [f"total{v} += tl.where(live, {values.value(node)}, 0.0)" for v, node in d.vectors.items()]
        return [*stores, *sums]

    def ends(self) -> list[str]:
        d = self.unit.backward
        lines = [
            "if RAGGED:",
            "    for t in range(tl.maximum(lo, LEN), tl.minimum(lo + CT, T)):",
            "        at = base + t",
        ]
        lines += [
            f"        {store(f'DX{k}', f'at * wide{k} + from{k} + cols', '0.0', 'ok')}" for k in d.steps
        ]
        if not d.steps:
            lines = []
        lines += [store(f"DV{i}", "piece", f"total{i}", "ok") for i in d.vectors]
        return lines + [store(f"DI{k}", "own", f"s{k}", "ok & (c == 0)") for k in range(self.count)]
