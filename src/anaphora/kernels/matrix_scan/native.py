"""The matrix scan on the CPU, in C: one step after the other, and no state stored but the first of each group of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.kernels.matrix_scan.chunks import by_chunks
from anaphora.kernels.recurrence.backends.c.source import prelude
from anaphora.native.c import CLibrary, beside, plain
from anaphora.native.transformed import transformed

STEPS = 16  # of a group, as the source has it
PER_THREAD = 1 << 16  # multiplications that are worth a thread
Pair = tuple[Tensor, Tensor]
library = CLibrary(
    "matrix_scan",
    lambda double: prelude(double) + beside(__package__, "scan.c"),
    no_memory="matrix_scan ran out of memory; use smaller batches",
)


def serves(
    r: Tensor, k: Tensor, v: Tensor, w: Tensor, state: Tensor | None, a: Tensor | None, b: Tensor | None
) -> bool:
    """Whether the program takes these: on the CPU, where there is a compiler, every shape as `matrix_scan` has it, and
    neither torch.compile, functorch, a trace nor forward-mode differentiation follows the operations."""
    given = [x for x in (r, k, v, w, state, a, b) if x is not None]
    if not (plain(*given) and all(x.is_floating_point() for x in given)) or v.dim() != 4:
        return False
    keys, matrix = (*v.shape[:3], k.shape[-1]), (v.shape[0], v.shape[2], k.shape[-1], v.shape[3])
    return (
        all(x is None or x.shape == keys for x in (r, k, a, b))
        and w.shape in (keys, keys[:3])
        and (state is None or state.shape == matrix)
        and min((*keys, *v.shape)) > 0
        and not transformed()
        and library.functions(_kind(v)) is not None
    )


def run(
    r: Tensor, k: Tensor, v: Tensor, w: Tensor, state: Tensor | None, a: Tensor | None, b: Tensor | None
) -> Pair:
    """As `signed_scan`: y in the type of v, the last state in float32 or float64."""
    kind = _kind(v)
    if state is None:
        state = v.new_zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3], dtype=kind)
    given = [None if x is None else x.to(kind).contiguous() for x in (r, k, v, w, a, b, state)]
    y, last = _Scan.apply(*given)  # type: ignore[no-untyped-call]
    return y.to(v.dtype), last


def _kind(v: Tensor) -> torch.dtype:
    return torch.promote_types(v.dtype, torch.float32)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor | None) -> Pair:
        _, k, v, _, _, _, state = given
        assert k is not None
        assert v is not None
        assert state is not None
        batch, time, heads, d = k.shape
        y, last = torch.empty_like(v), torch.empty_like(state)
        marks = None
        if any(ctx.needs_input_grad):
            marks = v.new_empty(batch, heads, -(-time // STEPS), d, v.shape[3])
        _call("matrix_forward", given, (*given, y, last, marks))
        ctx.save_for_backward(*given, marks)
        return y, last

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dlast: Tensor) -> Any:
        *given, marks = ctx.saved_tensors
        if torch.is_grad_enabled():  # gradients that are differentiated in turn are those of torch
            return _differentiable(given, ctx.needs_input_grad, dy, dlast)
        *inputs, state = given
        r, k, v, w, a, b = inputs
        sums = [None if x is None else torch.zeros_like(x) for x in (r, k, w, a, b)]
        dv, dstate = torch.empty_like(v), torch.empty_like(state)
        found = (*sums[:2], dv, *sums[2:], dstate)
        _call("matrix_backward", given, (*inputs, marks, dy.contiguous(), dlast.contiguous(), *found))
        return found


def _differentiable(
    given: Sequence[Tensor | None], needs: Sequence[bool], dy: Tensor, dlast: Tensor
) -> tuple[Tensor | None, ...]:
    r, k, v, w, a, b, state = given
    assert r is not None
    assert k is not None
    assert v is not None
    assert w is not None
    outputs = by_chunks(r, k, v, w, state, a, b, direct=True)
    wanted = [x for x, need in zip(given, needs, strict=True) if need and x is not None]
    found = iter(torch.autograd.grad(outputs, wanted, (dy, dlast), create_graph=True, allow_unused=True))
    pairs = zip(given, needs, strict=True)
    return tuple([next(found) if need and x is not None else None for x, need in pairs])


def _call(name: str, given: Sequence[Tensor | None], tensors: Sequence[Tensor | None]) -> None:
    _, k, v, w, a, *_ = given
    assert k is not None
    assert v is not None
    assert w is not None
    sizes = [*k.shape, v.shape[3], int(w.dim() == 3), int(a is not None)]
    work = k.numel() * v.shape[3]
    threads = max(1, min(torch.get_num_threads(), k.shape[0] * k.shape[2], work // PER_THREAD))
    library.call(v.dtype, name, (*sizes, threads), tensors)
