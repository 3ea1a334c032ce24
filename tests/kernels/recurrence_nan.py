"""Cells with NaN or infinities among their inputs, and the NaN that the reference loop makes of them.

Past the end of a row nothing is compared: the loop itself would make 0 · NaN of its state there.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from test_recurrence_drawn import OPERATIONS, Drawn
from torch import Tensor

from anaphora import nn
from anaphora.engine.backends.base import LayerRun, Result
from anaphora.engine.backends.reference import run_reference
from anaphora.nn.recurrent_step import LayerStep


def by_loop(run: LayerRun) -> Result:
    """The reference, with what a layer's run says."""
    params = run.params or {}
    return run_reference(run.step, params, run.steps, run.rows, run.initial, run.lengths, run.reverse)


def drawn_cell(seed: int, inputs: int, hidden: int) -> Drawn:
    """A cell of two to eight random operations."""
    draw = random.Random(1000 + seed)
    program = [
        (draw.choice(OPERATIONS), draw.randrange(30), draw.randrange(30)) for _ in range(draw.randint(2, 8))
    ]
    torch.manual_seed(seed)
    return Drawn(inputs, hidden, states=draw.randint(1, 2), program=program)


class Spoilt:
    """A cell and inputs of which some numbers are NaN or infinite; rows end early, some at once."""

    def __init__(
        self, cell: nn.Cell, seed: int, bad: float, device: str = "cpu", batch: int = 11, time: int = 7
    ):
        draw = random.Random(seed)
        torch.manual_seed(seed)
        self.cell, hidden = cell.to(device), cell.hidden
        self.x = torch.randn(batch, time, cell.inputs, device=device)
        self.initial = [torch.randn(batch, hidden, device=device) for _ in cell.state]
        self.lengths = torch.randint(0, time + 1, (batch,), device=device)
        self.weights = [torch.randn(batch, time, hidden, device=device)]
        self.weights += [torch.randn(batch, hidden, device=device) for _ in cell.state]
        self.clean = self.results(by_loop)
        for _ in range(2):
            self.x.view(-1)[draw.randrange(self.x.numel())] = bad
        state = draw.choice(self.initial)
        state.view(-1)[draw.randrange(state.numel())] = bad

    def results(self, run: Callable[[LayerRun], Result], row: int | None = None) -> list[Tensor]:
        """y, the last states, and the gradients of x, the first states and the parameters; of one row, up to its end."""
        some = slice(None) if row is None else slice(row, row + 1)
        until = self.x.shape[1] if row is None else int(self.lengths[row])
        x = self.x[some, :until].clone().requires_grad_()
        start = tuple(s[some].clone().requires_grad_() for s in self.initial)
        params = {k: p.detach().clone().requires_grad_() for k, p in self.cell.named_parameters()}
        lengths = self.lengths if row is None else None
        y, last = run(LayerRun(LayerStep(self.cell), params, (x,), (), start, lengths))
        leaves = [x, *start, *params.values()]
        weights = [self.weights[0][some, :until], *(w[some] for w in self.weights[1:])]
        grads = torch.autograd.grad([y, *last], leaves, weights, allow_unused=True)
        zeros = (torch.zeros_like(v) for v in leaves)
        return [y, *last, *(z if g is None else g for g, z in zip(grads, zeros, strict=True))]

    def expected(self) -> list[Tensor]:
        """The same by the reference loop, row by row and each no further than to its end."""
        states = len(self.initial)
        y, dx = torch.zeros_like(self.weights[0]), torch.zeros_like(self.x)
        last, first = [s.clone() for s in self.initial], [w.clone() for w in self.weights[1:]]
        params = [torch.zeros_like(p) for p in self.cell.parameters()]
        for row, length in enumerate(self.lengths.tolist()):
            if not length:
                continue
            found = iter(self.results(by_loop, row))
            y[row, :length] = next(found)[0]
            for k in range(states):
                last[k][row] = next(found)[0]
            dx[row, :length] = next(found)[0]
            for k in range(states):
                first[k][row] = next(found)[0]
            for total, part in zip(params, found, strict=True):
                total += part
        return [y, *last, dx, *first, *params]

    @property
    def usable(self) -> bool:
        """Whether all is finite when nothing is spoilt."""
        return all(bool(t.isfinite().all()) for t in self.clean)

    def differences(self, run: Callable[[LayerRun], Result]) -> list[str]:
        """Where a backend has NaN and the loop has none, or the reverse; one line per result."""
        wrong = []
        for k, (a, b) in enumerate(zip(self.results(run), self.expected(), strict=True)):
            if not torch.equal(a.isnan(), b.isnan()):
                counts = int(a.isnan().sum()), int(b.isnan().sum())
                wrong.append(f"result {k}: NaN {counts[0]}, by the loop {counts[1]}, of {a.numel()}")
        return wrong
