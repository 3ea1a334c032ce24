"""Persistent kernels without a GPU: the same statements compiled as C, exchanges done by numpy.

``i`` counts all columns of a row here, where on a GPU it counts the few of a thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.engine.backends.expressions import NUMBERS
from anaphora.engine.backends.persistent.body import Body, place_name
from anaphora.engine.backends.persistent.columns import Exchange, Key, Program
from anaphora.engine.backends.persistent.launch import Arrays, Pass, make_programs
from anaphora.engine.backends.persistent.passes import Passes
from anaphora.engine.backends.persistent.source import Kernel
from anaphora.engine.backends.persistent.tiling import choose
from anaphora.engine.plan import Plan
from anaphora.native import c as compiler

Floats = NDArray[np.float32]

_HEAD = """
#include <math.h>
#define K(x) ((float)(x))
#define HALF 0
#define IN static inline
#define __fdividef(a,b) ((a)/(b))
#define __expf expf
static inline float rsqrtf(float v){return 1.f/sqrtf(v);}
"""
_RULE = "// ----------------------------------------------------------------"
# The kernels' own functions, which come after a heading.
_FUNCTIONS = _HEAD + NUMBERS.read_text().split(f"{_RULE} functions", 1)[1]


class Host:
    """One pass, run row by row and step by step."""

    def __init__(self, program: Program, hidden: int, operands: int):
        self.program, self.hidden, self.operands = program, hidden, operands
        self.body = Body(program)
        self.stages = [self._stage(level) for level in range(program.stages)]
        names = dict.fromkeys(self.body.declared)
        self.scalars = [f"p{p.index}_{p.block}" for p in program.places if p.kind == "vector"]
        held = [place_name(p) for p in program.places if p.kind not in ("vector", "carried")]
        held += [f"s{k}" for k in range(program.carried)] + ["g0"]
        arrays = "".join(f"float {name}[{hidden}];" for name in [*names, *held])
        vectors = "".join(f"float vec_{name}[{hidden}];" for name in self.scalars)
        defined = "".join(f"#define {name} vec_{name}[i]\n" for name in self.scalars)
        stages = "".join(
            f"void stage{level}(void){{for(int i=0;i<{hidden};i++){{{' '.join(lines)}}}}}\n"
            for level, lines in enumerate(self.stages)
        )
        self.library = compiler.load(_FUNCTIONS + arrays + vectors + "\n" + defined + stages, "host")

    def _stage(self, level: int) -> list[str]:
        columns = self.program.columns
        for e in self.program.exchanges:
            if e.level == level:
                for block in range(columns.blocks(e.node)):
                    if (e.node.number, block) in self.program.reached:
                        self.body.known((e.node.number, block))
        now = [k for k in self.program.reached if columns.level(k) == level and not columns.exchanged(k)]
        return self.body.statements(now)

    def array(self, name: str) -> Floats:
        return np.frombuffer((ctypes.c_float * self.hidden).in_dll(self.library, name), np.float32)

    def number(self, key: Key) -> Floats:
        """What a number is in every column of the row at work."""
        node = self.program.columns.nodes[key[0]]
        if node.op == "const":
            return np.full(self.hidden, node.value, np.float32)
        name = self.body.name(key)
        return self.array(name.removesuffix("[i]") if name.endswith("[i]") else f"vec_{name}")

    # ------------------------------------------------------------------ a pass
    def run(self, kernel_pass: Pass, arrays: Arrays, time: int, batch: int, reverse: bool) -> None:
        given = {n: _numpy(t) for n, t in arrays.items() if t is not None}
        self.batch = batch
        self._vectors(given)
        sums = np.zeros((len(self.program.sums), self.hidden), np.float32)
        lengths, rows = (
            given["LENGTHS"].reshape(2, batch) if "LENGTHS" in given else ([time] * batch, range(batch))
        )
        for length, b in zip(lengths, rows, strict=True):
            self._row(kernel_pass, given, int(b), time, int(length), reverse, sums)
        if self.program.sums:
            given["SUMS"][:] = 0
            given["SUMS"][:, 0, : self.hidden] = sums

    def _vectors(self, given: dict[str, Floats]) -> None:
        h = self.hidden
        for p in self.program.places:
            if p.kind == "vector":
                vector = given[f"P{p.index}"]
                value = vector[p.block * h : (p.block + 1) * h] if len(vector) > 1 else vector[0]
                self.array(f"vec_p{p.index}_{p.block}")[:] = value

    def _row(
        self, run: Pass, given: dict[str, Floats], b: int, time: int, length: int, reverse: bool, sums: Floats
    ) -> None:
        program, h = self.program, self.hidden
        states = [
            given[f"FIRST{k}"][b] if f"FIRST{k}" in given else np.zeros(h) for k in range(program.carried)
        ]
        states = [s.astype(np.float32) for s in states]
        shared = np.zeros((time, b + 1, 0, h), np.float32)
        if program.shared:
            shared = given["SHARED"].reshape(time, -1, len(program.shared), run.tiling.padded)
        for t in range(length, time):
            shared[t, b] = 0
            if not program.backward:
                given["Y"][b, t] = 0
        steps = range(length - 1, -1, -1) if program.backward else range(length)
        for t in steps:
            at = length - 1 - t if reverse else t
            self._load(given, b, at, time, states)
            for level in range(program.stages):
                for e in program.exchanges:
                    if e.level == level:
                        self._exchange(run, given, e)
                getattr(self.library, f"stage{level}")()
            for k, key in enumerate(program.shared):
                shared[at, b, k] = 0
                shared[at, b, k, :h] = self.number(key)
            for k, key in enumerate(program.sums):
                one = program.columns.nodes[key[0]].width == 1
                sums[k, : 1 if one else h] += self.number(key)[: 1 if one else h]
            self._keep(run, given, at * self.batch + b)
            states = [self.number(key).copy() for key in program.results]
            if not program.backward:
                given["Y"][b, at] = states[0]
        for k, state in enumerate(states):
            given[f"LAST{k}"][b] = state

    def _load(self, given: dict[str, Floats], b: int, at: int, time: int, states: list[Floats]) -> None:
        h, r = self.hidden, at * self.batch + b
        steps = self.batch * time
        for k, state in enumerate(states):
            self.array(f"s{k}")[:] = state
        if self.program.backward:
            self.array("g0")[:] = states[0] + (given["DY"][at, b] if "DY" in given else 0)
        for p in self.program.places:
            if p.kind in ("vector", "carried"):
                continue
            if p.kind == "kept":
                value = given["KEEP"][r].reshape(h, -1)[:, p.block]
            elif p.kind == "row_kept":
                value = given["KROW"][r][p.block]
            elif p.kind == "ahead":
                value = given[f"A{p.index}"].reshape(-1)[r]
            elif p.kind == "row":
                value = given[f"Q{p.index}"][b].reshape(-1, h)[p.block]
            elif p.kind == "operand":
                width = len(given["OPERAND"][r]) // max(1, self.operands)
                value = given["OPERAND"][r][p.block * width : p.block * width + h]
            else:
                source = given[f"{'S' if p.kind == 'step' else 'X'}{p.index}"].reshape(-1, h)
                value = source[r * (len(source) // steps) + p.block]
            self.array(place_name(p))[:] = value

    def _exchange(self, run: Pass, given: dict[str, Floats], e: Exchange) -> None:
        h, padded = self.hidden, run.tiling.padded
        if not e.is_product:
            value = np.stack([self.number(k) for k in e.operands])
            if self.program.columns.centred(e.node) is not None:
                value = (value - value.mean()) ** 2
            self.number((e.node.number, 0))[:] = value.max() if e.node.op == "maximum" else value.sum()
            return
        start, count = self.program.start(e), len(set(e.operands))
        row = np.zeros((count, padded), np.float32)
        for k, key in enumerate(self.program.shared[start : start + count]):
            row[k, :h] = self.number(key)
        product = given[f"M{self.program.products.index(e)}"] @ row.reshape(-1)
        for block, part in enumerate(product.reshape(-1, padded)):
            if (e.node.number, block) in self.program.reached:
                self.number((e.node.number, block))[:] = part[:h]

    def _keep(self, run: Pass, given: dict[str, Floats], r: int) -> None:
        if self.program.keep:
            record = given["KEEP"][r].reshape(self.hidden, run.kernel.kept)
            for q, key in enumerate(self.program.keep):
                record[:, q] = self.number(key)
        for q, key in enumerate(self.program.keep_rows):
            given["KROW"][r, q] = self.number(key)[0]


def _numpy(tensor: Tensor) -> Floats:
    array: Floats = tensor.detach().numpy()
    return array


def _run(
    host: Host,
    kernel_pass: Pass,
    sides: Sequence[Arrays],
    time: int,
    batch: int,
    reverse: bool,
    time_first: bool,
) -> None:
    arrays, dy = sides[0], sides[0].get("DY")
    if dy is not None and not time_first:
        arrays = {**arrays, "DY": dy.transpose(0, 1)}
    with torch.no_grad():
        host.run(kernel_pass, arrays, time, batch, reverse)


def host_passes(plan: Plan, batch: int, sms: int = 132) -> Passes:
    """The passes of a plan in float32, run by the host in place of a GPU."""
    programs = make_programs(plan)
    made: list[Pass] = []
    for program in (programs.forward, programs.backward, programs.running):
        tiling = choose(program, programs.hidden, batch, False, sms)
        assert tiling is not None
        before = made[0].kernel if program.backward else None
        one = Pass(Kernel(program, tiling, "tf32", before), torch.device("cpu"), "sm_90a", sms)
        assert one.kernel.source
        host = Host(program, programs.hidden, len(one.kernel.before.program.shared))
        one.run = partial(_run, host, one)  # type: ignore[method-assign]
        made.append(one)
    return Passes(programs, *made)
