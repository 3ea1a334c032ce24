"""The matrix scan on the CPU, in C: one step after the other, and no state stored but the first of each group of steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.engine.backends.c.source import prelude
from anaphora.native.c import CLibrary, beside, plain
from anaphora.native.following import following
from anaphora.native.fused import Backward, fused
from anaphora.ops.matrix_scan.chunks import by_chunks

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
    no one follows the operations."""
    given = [x for x in (r, k, v, w, state, a, b) if x is not None]
    if not (plain(*given) and all(x.is_floating_point() for x in given)) or v.dim() != 4:
        return False
    keys, matrix = (*v.shape[:3], k.shape[-1]), (v.shape[0], v.shape[2], k.shape[-1], v.shape[3])
    return (
        all(x is None or x.shape == keys for x in (r, k, a, b))
        and w.shape in (keys, keys[:3])
        and (state is None or state.shape == matrix)
        and min((*keys, *v.shape)) > 0
        and following(*given) is None
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
    y, last = _scan(*given)
    return y.to(v.dtype), last


def _kind(v: Tensor) -> torch.dtype:
    return torch.promote_types(v.dtype, torch.float32)


def _forward(keep: bool, *given: Tensor | None) -> tuple[Pair, Sequence[Tensor | None]]:
    _, k, v, *_, state = given
    assert k is not None
    assert v is not None
    assert state is not None
    batch, time, heads, d = k.shape
    y, last = torch.empty_like(v), torch.empty_like(state)
    marks = v.new_empty(batch, heads, -(-time // STEPS), d, v.shape[3]) if keep else None
    _call("matrix_forward", given, (*given, y, last, marks))
    return (y, last), (marks,)


def _backward(back: Backward) -> Sequence[Tensor | None]:
    kept, given, grads, _ = back
    (marks,), (*inputs, state) = kept, given
    r, k, v, w, a, b = inputs
    dy, dlast = (
        torch.zeros_like(like) if g is None else g.contiguous()
        for g, like in zip(grads, (v, state), strict=True)
    )
    sums = [None if x is None else torch.zeros_like(x) for x in (r, k, w, a, b)]
    dv, dstate = torch.empty_like(v), torch.empty_like(state)
    found = (*sums[:2], dv, *sums[2:], dstate)
    _call("matrix_backward", given, (*inputs, marks, dy, dlast, *found))
    return found


def _by_torch(
    r: Tensor, k: Tensor, v: Tensor, w: Tensor, a: Tensor | None, b: Tensor | None, state: Tensor
) -> Pair:
    return by_chunks(r, k, v, w, state, a, b, direct=True)


_scan = fused(_forward, _backward, _by_torch)


def _call(name: str, given: Sequence[Tensor | None], tensors: Sequence[Tensor | None]) -> None:
    _, k, v, w, a, *_ = given
    assert k is not None
    assert v is not None
    assert w is not None
    sizes = [*k.shape, v.shape[3], int(w.dim() == 3), int(a is not None)]
    work = k.numel() * v.shape[3]
    threads = max(1, min(torch.get_num_threads(), k.shape[0] * k.shape[2], work // PER_THREAD))
    library.call(v.dtype, name, (*sizes, threads), tensors)
