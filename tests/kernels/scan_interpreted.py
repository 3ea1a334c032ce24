"""Units computed step by step in torch, gradients by their derived graphs: what the generated kernels compute, uncompiled."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.engine.backends.scan.walk import Direction, Given, Gradients, walk_by_torch
from anaphora.engine.backends.torch_ops.passes import Evaluator
from anaphora.engine.units import Unit


class InterpretedKernels:
    """For whole rows only: lengths are left to the compiled kernels."""

    def forward(
        self, unit: Unit, given: Given, how: Direction, keep: bool
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        with torch.no_grad():
            found = walk_by_torch(unit, given, how)
            exports, last = found[: len(unit.exports)], found[len(unit.exports) :]
            fresh = Unit(unit.stage, unit.width, unit.graph, unit.states, unit.outputs)
            fresh.exports, fresh.sequences = [unit.outputs[i] for i in unit.remembered], unit.sequences
            return exports, last, walk_by_torch(fresh, given, how)[: len(unit.remembered)]

    def backward(
        self,
        unit: Unit,
        given: Given,
        how: Direction,
        remembered: Sequence[Tensor],
        dexports: Sequence[Tensor | None],
        dlast: Sequence[Tensor | None],
    ) -> Gradients:
        d, w, g = unit.backward, unit.width, unit.graph
        x, batch, time = given.flat()[0], how.batch, how.time
        roots = [*d.states, *d.steps.values(), *d.vectors.values()]
        leaf = {
            (kind, i): g.node(kind, (), w, i).number
            for kind in ("step", "vector", "row", "state", "gradient")
            for i in range(12)
        }
        evaluate = Evaluator(roots, set(leaf.values()))
        dstate = [torch.zeros_like(s) if v is None else v for s, v in zip(given.initial, dlast, strict=True)]
        dsequences = [torch.zeros_like(s) for s in given.sequences]
        dvectors = [torch.zeros_like(v) for v in given.vectors]
        order = range(time) if how.reverse else range(time - 1, -1, -1)
        for t in order:
            before = t + 1 if how.reverse else t - 1
            values = {leaf["vector", i]: v for i, v in enumerate(given.vectors)}
            values |= {leaf["row", i]: v for i, v in enumerate(given.rows)}
            values |= {
                leaf["step", k]: given.sequences[s][:, t, a : a + w] for k, (s, a) in enumerate(given.places)
            }
            for i, kept in zip(unit.remembered, remembered, strict=True):
                values[leaf["state", i]] = kept[:, before] if 0 <= before < time else given.initial[i]
            values |= {leaf["gradient", i]: v for i, v in enumerate(dstate)}
            for e, de in enumerate(dexports):
                values[leaf["gradient", len(dstate) + e]] = x.new_zeros(batch, w) if de is None else de[:, t]
            found = iter(evaluate(values, [], x.new_empty(batch, w)))
            dstate = [next(found) for _ in dstate]
            for k in d.steps:
                s, a = given.places[k]
                dsequences[s][:, t, a : a + w] += next(found)
            for i in d.vectors:
                dvectors[i] += next(found).sum(0)
        return Gradients(dsequences, dvectors, dstate)

    def multiply(self, x: Tensor, matrix: Tensor, lengths: Tensor | None) -> Tensor:
        return x @ matrix.t()

    def outer(self, g: Tensor, x: Tensor, lengths: Tensor | None) -> Tensor:
        return torch.einsum("btn,btk->nk", g, x)
