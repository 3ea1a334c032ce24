"""Mamba's selective scan on a GPU: one kernel forward, one backward; ``gpu.cu`` says how.

Axes: B batch, T time, H channels, N numbers of a channel's state.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.kernels.recurrence.backends.expressions import NUMBERS
from anaphora.native.cuda import KINDS, Loaded, loaded, serves

SOURCE = Path(__file__).with_suffix(".cu")
STATES, CHANNELS, GROUP, THREADS = 16, 64, 16, 256  # as the source has them


def can_run(u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor) -> bool:
    """Whether the kernels serve these tensors."""
    sizes = rate.shape[-1] == STATES and u.shape[1] > 0
    return sizes and u.dtype in KINDS and state.dtype == torch.float32 and serves(u, delta, rate, b, c, state)


def selective_scan(
    u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """y ``(B, T, H)`` and the last state ``(B, H, N)`` of u, delta ``(B, T, H)``, rate ``(H, N)``, b, c ``(B, T, N)``."""
    kind = u.dtype
    given = [u, delta.to(kind), rate.float(), b.to(kind), c.to(kind), state]
    return _Scan.apply(*(t.contiguous() for t in given))  # type: ignore[no-untyped-call, no-any-return]


def source(kind: int) -> str:
    """The kernels for a type of numbers."""
    return f"#define KIND {kind}\n#define FAST 0\n{NUMBERS.read_text()}{SOURCE.read_text()}"


@cache
def _kernel(name: str, kind: int, device: torch.device) -> Loaded:
    return loaded(source(kind), name, 0, THREADS, device)


class _Scan(torch.autograd.Function):
    kernel = staticmethod(_kernel)  # tests put another here

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Any:
        u, delta, rate, b, c, state = given
        batch, time, width = u.shape
        y, last = torch.empty_like(u), torch.empty_like(state)
        scaled = rate * math.log2(math.e)
        keep = any(ctx.needs_input_grad)
        marks = state.new_empty(batch, -(-time // GROUP), width, STATES) if keep else None
        run = _Scan.kernel("forward", KINDS[u.dtype], u.device)
        with torch.cuda.device(u.device) if u.is_cuda else nullcontext():
            run.launch(
                batch * -(-width // CHANNELS), [u, delta, scaled, b, c, state, y, last, marks], [time, width]
            )
        if marks is not None:
            ctx.save_for_backward(u, delta, scaled, b, c, marks)
        return y, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor, dlast: Tensor) -> Any:
        u, delta, scaled, b, c, marks = ctx.saved_tensors
        batch, time, width = u.shape
        blocks = -(-width // CHANNELS)
        du, ddelta = torch.empty_like(u), torch.empty_like(u)
        parts = marks.new_empty(blocks, batch, time, 2, STATES)
        drate, dstate = marks.new_empty(batch, width, STATES), marks.new_empty(batch, width, STATES)
        run = _Scan.kernel("backward", KINDS[u.dtype], u.device)
        with torch.cuda.device(u.device) if u.is_cuda else nullcontext():
            given = [u, delta, scaled, b, c, marks, dy.contiguous(), dlast.contiguous()]
            run.launch(batch * blocks, [*given, du, ddelta, parts, drate, dstate], [batch, time, width])
        db, dc = parts.sum(0).unbind(2)
        return du, ddelta, drate.sum(0), db.to(b.dtype), dc.to(c.dtype), dstate
