"""Mamba's selective scan on a GPU: one kernel forward, one backward; ``gpu.cu`` says how.

Axes: B batch, T time, H channels, N numbers of a channel's state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from anaphora.engine.backends.expressions import NUMBERS
from anaphora.native.cuda import KINDS, Loaded, loaded, serves
from anaphora.native.fused import Backward, fused
from anaphora.ops.selective.chunks import by_chunks

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
    found: tuple[Tensor, Tensor] = _scan(*(t.contiguous() for t in given))
    return found


def source(kind: int) -> str:
    """The kernels for a type of numbers."""
    return f"#define KIND {kind}\n#define FAST 0\n{NUMBERS.read_text()}{SOURCE.read_text()}"


@cache
def _kernel(name: str, kind: int, device: torch.device) -> Loaded:
    return loaded(source(kind), name, 0, THREADS, device)


def _forward(keep: bool, *given: Tensor) -> tuple[tuple[Tensor, Tensor], Sequence[Tensor | None]]:
    u, delta, rate, b, c, state = given
    batch, time, width = u.shape
    y, last = torch.empty_like(u), torch.empty_like(state)
    scaled = rate * math.log2(math.e)
    marks = state.new_empty(batch, -(-time // GROUP), width, STATES) if keep else None
    run = _kernel("forward", KINDS[u.dtype], u.device)
    with torch.cuda.device(u.device) if u.is_cuda else nullcontext():
        run.launch(
            batch * -(-width // CHANNELS), [u, delta, scaled, b, c, state, y, last, marks], [time, width]
        )
    return (y, last), (scaled, marks)


def _backward(back: Backward) -> tuple[Tensor, ...]:
    kept, given, grads, _ = back
    (scaled, marks), (u, delta, _, b, c, state) = kept, given
    dy, dlast = (
        torch.zeros_like(like) if g is None else g.contiguous()
        for g, like in zip(grads, (u, state), strict=True)
    )
    batch, time, width = u.shape
    blocks = -(-width // CHANNELS)
    du, ddelta = torch.empty_like(u), torch.empty_like(u)
    parts = marks.new_empty(blocks, batch, time, 2, STATES)
    drate, dstate = marks.new_empty(batch, width, STATES), marks.new_empty(batch, width, STATES)
    run = _kernel("backward", KINDS[u.dtype], u.device)
    with torch.cuda.device(u.device) if u.is_cuda else nullcontext():
        pointers = [u, delta, scaled, b, c, marks, dy, dlast, du, ddelta, parts, drate, dstate]
        run.launch(batch * blocks, pointers, [batch, time, width])
    db, dc = parts.sum(0).unbind(2)
    return du, ddelta, drate.sum(0), db.to(b.dtype), dc.to(c.dtype), dstate


_scan = fused(_forward, _backward, by_chunks)
