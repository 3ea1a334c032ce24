"""Shared by the tests of recurrences: cells, inputs, and all that a run gives, gradients included."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from anaphora import nn
from anaphora.engine import prepare
from anaphora.engine.backends.base import LayerRun
from anaphora.engine.backends.reference import run_reference
from anaphora.engine.dispatch import run_layer
from anaphora.engine.prepare import Engine, Prepared
from anaphora.native import c as compiler
from anaphora.nn.recurrent_step import LayerStep

I, H = 3, 4
CELLS = {
    "elman": lambda: nn.Elman(I, H),
    "relu": lambda: nn.Elman(I, H, activation="relu"),
    "lstm": lambda: nn.LSTM(I, H),
    "no forget": lambda: nn.LSTM(I, H, forget=False),
    "coupled": lambda: nn.LSTM(I, H, coupled=True),
    "peephole": lambda: nn.LSTM(I, H, peephole=True),
    "layer norm": lambda: nn.LSTM(I, H, layer_norm=True),
    "gru before": lambda: nn.GRU(I, H),
    "gru after": lambda: nn.GRU(I, H, reset="after"),
    "simple gru": lambda: nn.SimpleGRU(I, H),
    "mgu": lambda: nn.MGU(I, H),
    "shortcut": lambda: nn.Shortcut(I, H, cell=nn.GRU, by=3),
}


class Run:
    """An engine that is called as the reference is."""

    def __init__(self, step: LayerStep):
        self.engine = Engine(step, type(step.cell).__name__)

    def __call__(self, *arguments: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        return run_layer(self.engine, LayerRun(self.engine.function, *arguments))

    def prepared(self, *arguments: Any) -> Prepared:
        return self.engine.prepared(LayerRun(self.engine.function, *arguments))

    def planned(self, *arguments: Any) -> Prepared:
        """As `prepared`, without compiling C for it; a later run goes without it, too."""
        with patch.object(prepare, "COMPILED", ()):
            return self.prepared(*arguments)


def make_engine(cell: nn.Cell) -> Run:
    return Run(LayerStep(cell))


def inputs(
    cell: nn.Cell, dtype: torch.dtype, batch: int, time: int, device: str = "cpu"
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Random x and initial states that want gradients."""

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype).to(device).requires_grad_()

    return made(batch, time, cell.inputs), tuple(made(batch, cell.hidden) for _ in cell.state)


def results(run: Any, cell: nn.Cell, x: Tensor, initial: tuple[Tensor, ...], *rest: Any) -> list[Tensor]:
    """Outputs, last states, and the gradients of everything, for fixed random weights on the outputs."""
    params = dict(cell.named_parameters())
    y, last = run(params, (x,), (), initial, *rest)
    torch.manual_seed(11)
    loss = (y * torch.randn_like(y)).sum() + sum((s * torch.randn_like(s)).sum() for s in last)
    leaves = [x, *initial, *params.values()]
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [
        y,
        *last,
        *(g if g is not None else torch.zeros_like(v) for g, v in zip(found, leaves, strict=True)),
    ]


def reference(cell: nn.Cell) -> Any:
    return lambda *arguments: run_reference(LayerStep(cell), *arguments)


COMPILER = compiler.compiler() is not None
"""Whether there is a C compiler; without one the plan runs as torch operations."""
with_compiler = pytest.mark.skipif(not COMPILER, reason="no C compiler here")


def is_compiled(run: Run) -> bool:
    ready = [p for p in run.engine._prepared.values() if p.plan is not None]
    return bool(ready) and all(p.compiled is not None for p in ready)
