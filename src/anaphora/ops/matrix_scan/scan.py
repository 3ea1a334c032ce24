"""The matrix scan by what serves: fused programs on a GPU, C on the CPU, and elsewhere torch in chunks of steps."""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora.ops.matrix_scan import native
from anaphora.ops.matrix_scan.chunks import by_chunks
from anaphora.ops.matrix_scan.launch import run, serves


def matrix_scan(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    log_w: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    state: Tensor | None = None,
    *,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """All steps of a matrix-valued recurrence.

    r, k, a, b ``(B, T, N, D)``; v ``(B, T, N, E)``; log_w ``(B, T, N)`` or by channel ``(B, T, N, D)``, none above 0 for a
    stable recurrence; ``state`` ``(B, N, D, E)``, zeros if None; ``chunk``: steps computed side by side.
    Returns y ``(B, T, N, E)`` and the last state ``(B, N, D, E)``. Gradients flow to every argument.

    Raises ValueError if only one of ``a`` and ``b`` is given.

    >>> r, k, v = torch.ones(1, 3, 1, 2), torch.ones(1, 3, 1, 2), torch.ones(1, 3, 1, 4)
    >>> y, state = an.nn.linear.matrix_scan(r, k, v, torch.zeros(1, 3, 1))     # w = 1: a sum over time
    >>> y[0, :, 0, 0].tolist(), state.shape
    ([2.0, 4.0, 6.0], torch.Size([1, 1, 2, 4]))
    """
    _check_pair(a, b)
    if a is None and chunk is None and v.shape[1] > 1 and serves(r, k, v, log_w, state):
        return run(r, k, v, log_w, state, by_chunks)
    if chunk is None and native.serves(r, k, v, log_w, state, a, b):
        return native.run(r, k, v, log_w.to(torch.promote_types(v.dtype, torch.float32)).exp(), state, a, b)
    return by_chunks(r, k, v, log_w, state, a, b, chunk)


def signed_scan(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`matrix_scan` of decays given by themselves, not by their logarithms: they may be negative or 0."""
    _check_pair(a, b)
    if a is None and v.shape[1] > 1 and serves(r, k, v, w, state) and _positive(w):
        return run(r, k, v, w.log(), state, by_chunks)
    if native.serves(r, k, v, w, state, a, b):
        return native.run(r, k, v, w, state, a, b)
    return by_chunks(r, k, v, w, state, a, b, direct=True)


def _check_pair(a: Tensor | None, b: Tensor | None) -> None:
    if (a is None) != (b is None):
        raise ValueError("matrix_scan: a and b belong together; give both or neither.")


def _positive(w: Tensor) -> bool:
    """Whether all decays have a logarithm; no where looking at them would break a CUDA graph that is being captured."""
    if w.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return bool((w > 0).all())
