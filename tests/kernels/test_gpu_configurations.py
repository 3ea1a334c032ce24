"""Two hundred layers drawn at random on a GPU: every cell, odd sizes, all gradients, in three precisions.

Errors are those against the reference loop in float64. Where cuDNN has the cell they must not be larger than its own, on the
whole; each alone must keep to what its precision allows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from anaphora import nn
from anaphora.kernels.recurrence.choose import Way, force
from anaphora.kernels.recurrence.reference import run_reference
from anaphora.nn.recurrent_native import native_form
from anaphora.nn.recurrent_run import run_layer
from anaphora.nn.recurrent_step import LayerStep

pytestmark = pytest.mark.cuda
COUNT = 200
BOUNDS = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 4e-3}  # relative, of one tensor
CELLS: dict[str, Callable[[int, int], nn.Cell]] = {
    "elman": lambda i, h: nn.Elman(i, h),
    "elman relu": lambda i, h: nn.Elman(i, h, activation="relu"),
    "irnn": lambda i, h: nn.IRNN(i, h),
    "lstm": lambda i, h: nn.LSTM(i, h),
    "lstm no forget": lambda i, h: nn.LSTM(i, h, forget=False),
    "lstm coupled": lambda i, h: nn.LSTM(i, h, coupled=True),
    "lstm peephole": lambda i, h: nn.LSTM(i, h, peephole=True),
    "lstm layer norm": lambda i, h: nn.LSTM(i, h, layer_norm=True),
    "gru before": lambda i, h: nn.GRU(i, h),
    "gru after": lambda i, h: nn.GRU(i, h, reset="after"),
    "simple gru": lambda i, h: nn.SimpleGRU(i, h),
    "mgu": lambda i, h: nn.MGU(i, h),
    "shortcut": lambda i, h: nn.Shortcut(i, h, cell=nn.GRU, by=3),
}


@dataclass(frozen=True)
class Drawn:
    """One configuration."""

    cell: str
    dtype: torch.dtype
    batch: int
    time: int
    inputs: int
    hidden: int
    ragged: bool
    reverse: bool
    masked: bool
    zoned: bool
    seed: int

    @property
    def name(self) -> str:
        marks = [m for m in ("ragged", "reverse", "masked", "zoned") if getattr(self, m)]
        return f"{self.seed}: {self.cell} {str(self.dtype)[6:]} B{self.batch} T{self.time} H{self.hidden} {marks}"


def _drawn(count: int) -> list[Drawn]:
    choice = random.Random(9)
    return [
        Drawn(
            cell=list(CELLS)[k % len(CELLS)],
            dtype=choice.choice(list(BOUNDS)),
            batch=choice.choice((1, 7, 37)),
            time=choice.choice((1, 2, 9, 17)),
            inputs=choice.choice((1, 24, 100)),
            hidden=choice.choice((8, 136, 200, 320, 1000)),
            ragged=choice.random() < 0.4,
            reverse=choice.random() < 0.4,
            masked=choice.random() < 0.2,
            zoned=choice.random() < 0.15,
            seed=k,
        )
        for k in range(count)
    ]


def _errors(drawn: Drawn, ways: tuple[Way | None, ...]) -> dict[Way | None, list[float]]:
    """The relative error of outputs, last states and all gradients, by way."""
    torch.manual_seed(drawn.seed)
    cell = CELLS[drawn.cell](drawn.inputs, drawn.hidden).to("cuda", drawn.dtype)
    shape = (drawn.batch, drawn.hidden)
    x = torch.randn(drawn.batch, drawn.time, drawn.inputs, device="cuda", dtype=drawn.dtype)
    rows: tuple[Tensor, ...] = ()
    if drawn.masked:
        rows = (torch.rand(shape, device="cuda").gt(0.3).to(drawn.dtype) / 0.7,)
    extra: tuple[Tensor, ...] = ()
    if drawn.zoned:
        extra = tuple(
            torch.rand(drawn.batch, drawn.time, drawn.hidden, device="cuda").lt(0.2).to(drawn.dtype)
            for _ in cell.state
        )
    initial = tuple(torch.randn(shape, device="cuda", dtype=drawn.dtype) for _ in cell.state)
    lengths = None
    if drawn.ragged:
        lengths = torch.randint(0, drawn.time + 1, (drawn.batch,), device="cuda")
    dy = torch.randn(drawn.batch, drawn.time, drawn.hidden, device="cuda", dtype=drawn.dtype)
    dlast = [torch.randn(shape, device="cuda", dtype=drawn.dtype) for _ in cell.state]
    step = LayerStep(cell, masked=drawn.masked, zoneout="sample" if drawn.zoned else "")

    def results(run: Any, dtype: torch.dtype) -> list[Tensor]:
        params = {k: v.detach().to(dtype).requires_grad_() for k, v in cell.named_parameters()}
        x0 = x.to(dtype).requires_grad_()
        start = tuple(s.to(dtype).requires_grad_() for s in initial)
        steps = (x0, *(e.to(dtype) for e in extra))
        y, last = run(step, params, steps, tuple(r.to(dtype) for r in rows), start, lengths, drawn.reverse)
        outputs = [y, *last]
        weights = [dy.to(dtype), *(d.to(dtype) for d in dlast)]
        leaves = [x0, *start, *params.values()]
        grads = torch.autograd.grad(outputs, leaves, weights, allow_unused=True)
        return [
            *outputs,
            *(torch.zeros_like(v) if g is None else g for v, g in zip(leaves, grads, strict=True)),
        ]

    exact = results(run_reference, torch.float64)
    found: dict[Way | None, list[float]] = {}
    for way in ways:
        with force(way):
            ours = results(run_layer, drawn.dtype)
        # A gradient that is zero, or nearly, but for rounding is compared with what made it.
        scale = max(float(e.norm()) for e in exact) * 1e-3
        found[way] = [
            float((a.double() - b).norm() / b.norm().clamp(min=scale))
            for a, b in zip(ours, exact, strict=True)
        ]
    return found


def _native(drawn: Drawn) -> bool:
    plain = not (drawn.masked or drawn.zoned)
    return plain and native_form(CELLS[drawn.cell](2, 2)) is not None


def test_random_configurations() -> None:
    ours: list[float] = []
    cudnns: list[float] = []
    wrong = []
    for drawn in _drawn(COUNT):
        native = _native(drawn)
        found = _errors(drawn, (None, "cudnn") if native else (None,))
        bound = max([BOUNDS[drawn.dtype], *found.get("cudnn", [])])
        if not max(found[None]) <= bound:
            wrong.append(f"{drawn.name}: {max(found[None]):.1e}, bound {bound:.1e}")
        if native:
            unit = BOUNDS[drawn.dtype]  # so that every precision counts alike
            ours.append(max(found[None]) / unit)
            cudnns.append(max(found["cudnn"]) / unit)
    assert not wrong, "\n".join(wrong)
    assert len(ours) > 20
    assert sum(ours) <= 1.05 * sum(cudnns)


@pytest.mark.parametrize("way", ["triton", "graph"])
def test_ways_that_are_not_chosen_first(way: Way) -> None:
    for drawn in _drawn(len(CELLS)):
        found = _errors(drawn, (way,))[way]
        assert max(found) <= BOUNDS[drawn.dtype], drawn.name
