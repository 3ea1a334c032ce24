"""The printed kernels on the CPU, by Triton's interpreter: prints the largest difference to the loop for every case.

Run with TRITON_INTERPRET=1; see test_triton_source.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch
from recurrence_results import Run
from test_triton_source import CELLS, H, I
from torch import Tensor

from anaphora import nn
from anaphora.kernels.recurrence.arguments import Arguments, Call
from anaphora.kernels.recurrence.backends.torch_ops.passes import LOOP_PASSES
from anaphora.kernels.recurrence.backends.triton import passes
from anaphora.nn.recurrent_step import LayerStep

B, T = 3, 3
LENGTHS = torch.tensor([2, 0, 3])


def difference(cell: nn.Cell, masked: bool, lengths: Tensor | None, reverse: bool) -> float:
    """Between the two ways: outputs, last states and all gradients, with and without keeping values."""
    x = torch.randn(B, T, I, requires_grad=True)
    rows = (torch.rand(B, H),) if masked else ()
    states = tuple(torch.randn(B, H) for _ in cell.state)
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
    for ways in (LOOP_PASSES, passes.PRINTED_PASSES):
        y, last, kept = ways.forward(ready.plan, call, given, True)
        again, ends, _ = ways.forward(ready.plan, call, given, False)
        backward = ways.backward(ready.plan, call, given, kept, grads)
        found.append((y, *last, again, *ends, *backward))
    pairs = [(a, b) for a, b in zip(*found, strict=True) if a is not None and b is not None]
    return max(float((a - b).abs().max()) for a, b in pairs)


def main() -> None:
    torch.manual_seed(0)
    errors = {}
    modes = [(False, None, False), (False, LENGTHS, True), (True, LENGTHS, False)]
    for k, (name, make) in enumerate(CELLS.items()):
        masked, lengths, reverse = modes[k % 3]
        passes.shares = lambda *sizes, cut=1 + k % 2: cut  # products come whole, or in two shares
        errors[name] = difference(make(), masked, lengths, reverse)
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
