"""The selective scan on the CPU, in C; ``scan.c`` says how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.kernels.recurrence.backends.c.source import prelude
from anaphora.kernels.selective.chunks import by_chunks
from anaphora.native.c import CLibrary, beside, plain
from anaphora.native.transformed import transformed

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
    neither torch.compile, functorch, a trace nor forward-mode differentiation follows the operations."""
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
        and not transformed()
        and library.functions(state.dtype) is not None
    )


def selective_scan(
    u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """y in the type of u, and the last state."""
    given = [x.to(state.dtype).contiguous() for x in (u, delta, rate, b, c, state)]
    y, last = _Scan.apply(*given)  # type: ignore[no-untyped-call]
    return y.to(u.dtype), last


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Any:
        u, _, rate, *_, state = given
        y, last, marks = torch.empty_like(u), torch.empty_like(state), None
        if any(ctx.needs_input_grad):
            channels = library.count(u.dtype, "channels")
            batch, time, width = u.shape
            blocks = -(-width // channels)
            marks = u.new_empty(batch, -(-time // STEPS), blocks, rate.shape[1], channels)
        _call("selective_forward", u, rate, (*given, y, last, marks))
        ctx.save_for_backward(*given, marks)
        return y, last

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dlast: Tensor) -> Any:
        *given, marks = ctx.saved_tensors
        if torch.is_grad_enabled():  # gradients that are differentiated in turn are those of torch
            return _differentiable(given, ctx.needs_input_grad, dy, dlast)
        u, delta, rate, b, c, state = given
        du, ddelta, dstate = torch.empty_like(u), torch.empty_like(u), torch.empty_like(state)
        drate, db, dc = torch.empty_like(state), torch.zeros_like(b), torch.zeros_like(c)
        found = (du, ddelta, drate, db, dc, dstate)
        passed = (u, delta, rate, b, c, marks, dy.contiguous(), dlast.contiguous(), *found)
        _call("selective_backward", u, rate, passed)
        return du, ddelta, drate.sum(0), db, dc, dstate


def _differentiable(
    given: Sequence[Tensor], needs: Sequence[bool], dy: Tensor, dlast: Tensor
) -> tuple[Tensor | None, ...]:
    u, delta, rate, b, c, state = given
    outputs = by_chunks(u, delta, rate, b, c, state)
    wanted = [x for x, need in zip(given, needs, strict=True) if need]
    found = iter(torch.autograd.grad(outputs, wanted, (dy, dlast), create_graph=True, allow_unused=True))
    return tuple([next(found) if need else None for need in needs])


def _call(name: str, u: Tensor, rate: Tensor, tensors: Sequence[Tensor | None]) -> None:
    threads = max(1, min(torch.get_num_threads(), u.numel() * rate.shape[1] // PER_THREAD))
    library.call(u.dtype, name, (*u.shape, rate.shape[1], threads), tensors)
