"""The generated kernels on the CPU, by Triton's interpreter: prints the largest difference to the loop for every case, and
which results have NaN where the loop has none, or the reverse.

Run with TRITON_INTERPRET=1; see test_triton_source.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch
from recurrence_nan import Spoilt, drawn_cell
from recurrence_results import Run
from test_triton_source import CELLS, H, I
from torch import Tensor

from anaphora import nn
from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.base import LayerRun, Result
from anaphora.engine.backends.torch_ops.passes import LOOP_PASSES, run_bptt
from anaphora.engine.backends.triton import passes
from anaphora.engine.backends.triton.writer import CannotGenerate
from anaphora.nn.recurrent_step import LayerStep

B, T = 3, 3
DRAWN = 14  # random cells
LENGTHS = torch.tensor([2, 0, 3])


class Peaks(nn.Cell):
    """A row's maximum, which must be NaN where one of its numbers is; nothing else carries that on."""

    def setup(self, inputs: int, hidden: int) -> None:
        self.affine = nn.Affine(inputs, 2 * hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a, b = self.affine(x).chunk(2, -1)
        return torch.tanh(torch.maximum(a, b) + a.sign() - torch.cat([a, h], -1).amax(-1, keepdim=True))


def difference(
    cell: nn.Cell, masked: bool, lengths: Tensor | None, reverse: bool, spoilt: bool = False
) -> float:
    """Between the two backends: outputs, last states and all gradients, with and without keeping values.

    Infinite where one has NaN and the other has none. ``spoilt``: there is NaN in the inputs, also past the end of a row.
    """
    x = torch.randn(B, T, I, requires_grad=True)
    if spoilt:
        x.data[0, 1:, 0] = torch.nan
    rows = (torch.rand(B, H),) if masked else ()
    states = tuple(torch.randn(B, H) for _ in cell.state)
    if spoilt:
        states[0][2, 3] = torch.nan
    for p in cell.parameters():
        p.data += 0.1 * torch.randn_like(p)
    params = dict(cell.named_parameters())
    ready = Run(LayerStep(cell, masked=masked)).planned(params, (x,), rows, states)
    assert ready.plan is not None
    assert ready.trace is not None
    matrices, vectors = ready.trace.boundary(params)
    stacked = [torch.cat([matrices[k] for k in m.parts]).detach() for m in ready.plan.matrices]
    given = Arguments(stacked, [v.detach() for v in vectors], (x.detach(),), rows, states)
    call = Call(given.counts(), lengths, reverse)
    grads = [torch.randn(B, T, H), *(torch.randn(B, H) for _ in states)]
    found: list[Sequence[Tensor | None]] = []
    for which in (LOOP_PASSES, passes.GENERATED_PASSES):
        y, last, kept = which.forward(ready.plan, call, given, True)
        again, ends, _ = which.forward(ready.plan, call, given, False)
        backward = which.backward(ready.plan, call, given, kept, grads)
        found.append((y, *last, again, *ends, *backward))
    pairs = [(a, b) for a, b in zip(*found, strict=True) if a is not None and b is not None]
    if any(not torch.equal(a.isnan(), b.isnan()) for a, b in pairs):
        return float("inf")
    return max(float((a - b).nan_to_num().abs().max()) for a, b in pairs)


def by_kernels(run: LayerRun) -> Result:
    """A run by the generated kernels."""
    assert isinstance(run.step, LayerStep)
    ready = Run(run.step).planned(run.params, run.steps, run.rows, run.initial)
    assert ready.plan is not None
    given = ready.arguments(run)
    return run_bptt(ready.plan, given, run.lengths, run.reverse, passes.GENERATED_PASSES)


def nan_elsewhere() -> dict[str, list[str]]:
    """NaN that only the kernels have, or only the loop; cells the kernels are not made for are left out."""
    cells = {f"drawn {seed}": drawn_cell(seed, I, H) for seed in range(DRAWN)}
    cells |= {name: make() for name, make in CELLS.items() if name not in ("lstm_layer_norm", "shortcut")}
    found: dict[str, list[str]] = {}
    for k, (name, cell) in enumerate(cells.items()):
        bad = float("nan") if name.startswith("drawn") else float("inf")
        case = Spoilt(cell, k, bad, batch=5, time=4)
        try:
            found[name] = case.differences(by_kernels) if case.usable else []
        except CannotGenerate:
            continue
    return found


def main() -> None:
    torch.manual_seed(0)
    errors = {}
    modes = [(False, None, False), (False, LENGTHS, True), (True, LENGTHS, False)]
    for k, (name, make) in enumerate(CELLS.items()):
        masked, lengths, reverse = modes[k % 3]
        passes.shares = lambda *sizes, cut=1 + k % 2: cut  # products come whole, or in two shares
        errors[name] = difference(make(), masked, lengths, reverse)
    for name, make in {**CELLS, "peaks": lambda: Peaks(I, H)}.items():
        if name in ("peaks", "irnn", "lstm_layer_norm"):
            errors[f"{name} with NaN"] = difference(make(), False, LENGTHS, name == "irnn", spoilt=True)
    print(json.dumps({"errors": errors, "nan": nan_elsewhere()}))


if __name__ == "__main__":
    main()
