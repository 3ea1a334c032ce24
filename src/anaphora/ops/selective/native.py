"""The selective scan on the CPU, in C; ``scan.c`` says how."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.engine.backends.c.source import prelude
from anaphora.native.c import CLibrary, beside, plain
from anaphora.native.following import following
from anaphora.native.fused import Backward, fused
from anaphora.ops.selective.chunks import by_chunks

STEPS = 16  # of a group, as the source has it
PER_THREAD = 1 << 15  # numbers of states that are worth a thread
library = CLibrary(
    "selective",
    lambda double: prelude(double) + beside(__package__, "scan.c"),
    no_memory="a selective scan ran out of memory; use smaller batches",
    counts=("channels",),
)


def can_run(u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor) -> bool:
    """Whether the program takes these: on the CPU, where there is a compiler, every shape as `selective_scan` has it, and
    no one follows the operations."""
    given = (u, delta, rate, b, c, state)
    if not (plain(*given) and all(x.is_floating_point() for x in given)) or u.dim() != 3:
        return False
    batch, time, width = u.shape
    count = rate.shape[-1]
    shapes = (u.shape, (width, count), (batch, time, count), (batch, time, count), (batch, width, count))
    return (
        all(x.shape == shape for x, shape in zip(given[1:], shapes, strict=True))
        and min(batch, time, width, count) > 0
        and state.dtype in library.dtypes
        and following(*given) is None
        and library.functions(state.dtype) is not None
    )


def selective_scan(
    u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """y in the type of u, and the last state."""
    given = [x.to(state.dtype).contiguous() for x in (u, delta, rate, b, c, state)]
    y, last = _scan(*given)
    return y.to(u.dtype), last


def _forward(keep: bool, *given: Tensor) -> tuple[tuple[Tensor, Tensor], Sequence[Tensor | None]]:
    u, _, rate, *_, state = given
    y, last, marks = torch.empty_like(u), torch.empty_like(state), None
    if keep:
        channels = library.count(u.dtype, "channels")
        batch, time, width = u.shape
        blocks = -(-width // channels)
        marks = u.new_empty(batch, -(-time // STEPS), blocks, rate.shape[1], channels)
    _call("selective_forward", u, rate, (*given, y, last, marks))
    return (y, last), (marks,)


def _backward(back: Backward) -> tuple[Tensor, ...]:
    kept, given, grads, _ = back
    u, delta, rate, b, c, state = given
    dy, dlast = (
        torch.zeros_like(like) if g is None else g.contiguous()
        for g, like in zip(grads, (u, state), strict=True)
    )
    du, ddelta, dstate = torch.empty_like(u), torch.empty_like(u), torch.empty_like(state)
    drate, db, dc = torch.empty_like(state), torch.zeros_like(b), torch.zeros_like(c)
    found = (du, ddelta, drate, db, dc, dstate)
    _call("selective_backward", u, rate, (u, delta, rate, b, c, *kept, dy, dlast, *found))
    return du, ddelta, drate.sum(0), db, dc, dstate


_scan = fused(_forward, _backward, by_chunks)


def _call(name: str, u: Tensor, rate: Tensor, tensors: Sequence[Tensor | None]) -> None:
    threads = max(1, min(torch.get_num_threads(), u.numel() * rate.shape[1] // PER_THREAD))
    library.call(u.dtype, name, (*u.shape, rate.shape[1], threads), tensors)
