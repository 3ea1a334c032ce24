"""The matrix scan by what serves: fused programs on a GPU, C on the CPU, and elsewhere torch in chunks of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function

from anaphora.engine.backends.c.source import prelude
from anaphora.native.c import CLibrary, beside, plain
from anaphora.native.following import following
from anaphora.native.fused import Backward, fused
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
    if chunk is None and native_serves(r, k, v, log_w, state, a, b):
        return native_run(r, k, v, log_w.to(torch.promote_types(v.dtype, torch.float32)).exp(), state, a, b)
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
    if native_serves(r, k, v, w, state, a, b):
        return native_run(r, k, v, w, state, a, b)
    return by_chunks(r, k, v, w, state, a, b, direct=True)


def _check_pair(a: Tensor | None, b: Tensor | None) -> None:
    if (a is None) != (b is None):
        raise ValueError("matrix_scan: a and b belong together; give both or neither.")


def _positive(w: Tensor) -> bool:
    """Whether all decays have a logarithm; no where looking at them would break a CUDA graph that is being captured."""
    if w.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return bool((w > 0).all())


# ----------------------------------------------------------------------
# Recurrences whose state is a matrix, in chunks of steps, by torch's own functions.
#
# S is linear in itself, so the steps of a chunk can be computed side by side by matrix products, and only the states between
# chunks one after the other. What the delta rule reads of the steps before within its chunk is solved for: the triangular
# system of the WY representation (Yang et al. 2024).
#
# Decays multiply; here the logarithms of the steps between two places are summed directly, never as the difference of two long
# sums, so that decays of exactly 0 (log w = −∞) and near 1 are both exact. Decays that are given themselves, not by their
# logarithms, are multiplied and may have any sign. States are float32 or float64.
#
# Axes: B batch, T time, N heads, D and E the sides of a state; G chunks of C steps.
BY_HEAD, BY_CHANNEL = 64, 16  # steps of a chunk: decays by channel need C·C·D numbers of each


def by_chunks(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    state: Tensor | None,
    a: Tensor | None = None,
    b: Tensor | None = None,
    chunk: int | None = None,
    *,
    direct: bool = False,
) -> tuple[Tensor, Tensor]:
    """As `matrix_scan`; ``decay`` is log w, or w itself if ``direct``; ``chunk``: steps computed side by side."""
    dtype, kind = v.dtype, torch.promote_types(v.dtype, torch.float32)
    if state is None:
        state = v.new_zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3], dtype=kind)
    time = v.shape[1]
    given = [None if x is None else x.to(kind) for x in (r, k, v, decay, a, b)]
    if time == 1:
        first = [None if x is None else x[:, 0] for x in given]
        y, state = matrix_step(*first, state=state.to(kind), direct=direct)  # type: ignore[arg-type]
        return y[:, None].to(dtype), state
    size = chunk or (BY_CHANNEL if decay.dim() == 4 else BY_HEAD)
    size = min(size, time)
    r, k, v, a, b = (None if x is None else _chunks(x, size) for x in (*given[:3], *given[4:]))  # type: ignore[assignment]
    assert given[3] is not None
    between, start = _decays(_chunks(given[3], size, 1.0 if direct else 0.0), direct)
    y, state = _run(r, k, v, between, start, a, b, state.to(kind))
    return y.permute(0, 2, 3, 1, 4).flatten(1, 2)[:, :time].to(dtype), state


def matrix_step(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    log_w: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    state: Tensor,
    direct: bool = False,
) -> tuple[Tensor, Tensor]:
    """One step: r, k, a, b ``(B, N, D)``, v ``(B, N, E)``, log_w ``(B, N)`` or ``(B, N, D)``: y ``(B, N, E)`` and the state.

    ``direct``: log_w is w itself.

    >>> r, v, state = torch.ones(1, 1, 2), torch.ones(1, 1, 4), torch.zeros(1, 1, 2, 4)
    >>> y, state = an.nn.linear.matrix_step(r, r, v, torch.zeros(1, 1), state=state)
    >>> y[0, 0].tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    w = log_w if direct else log_w.exp()
    new = state * (w[..., None, None] if log_w.dim() == 2 else w[..., None]) + k[..., None] * v[..., None, :]
    if a is not None and b is not None:
        new = new + b[..., None] * torch.einsum("bnd,bnde->bne", a, state)[..., None, :]
    return torch.einsum("bnd,bnde->bne", r, new), new


def _decays(given: Tensor, direct: bool) -> tuple[Tensor, Tensor]:
    """log w or w ``(B, N, G, C[, D])``: the decay at i of what was written at j, ``(…, i, j[, D])``, and of the state before
    the chunk at i, ``(…, i[, D])``."""
    if not direct:
        return segments(given).exp(), given.cumsum(3).exp()
    lower, strict, spread = _pairs(given)
    return torch.where(strict, spread, 1.0).cumprod(3).masked_fill(~lower, 0.0), given.cumprod(3)


def _run(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    start: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """Everything ``(B, N, G, C, ·)``, the decays as of `_decays`: y ``(B, N, G, C, E)`` and the last state."""
    by_head = start.dim() == 4
    whole = start[:, :, :, -1]  # (…[, D]): of the state before the chunk, after it
    to_end = decay[:, :, :, -1]  # (…, j[, D])
    rest = to_end[..., None] if by_head else to_end
    late = r * (start[..., None] if by_head else start)
    written = _scores(r, k, decay) @ v  # (…, C, E)
    added = (k * rest).transpose(-1, -2) @ v  # (…, D, E)
    if a is None or b is None:
        befores, state = _between_chunks(state, whole, added, None, by_head)
        return written + late @ befores, state
    # What a reads of the state before each step: u = X S + Z, with the reads of earlier steps of the chunk solved for.
    before = F.pad(decay, (0, 0, 1, 0) if by_head else (0, 0, 0, 0, 1, 0))[:, :, :, :-1]  # of step i − 1
    reads = _scores(a, b, before)  # strictly lower
    earlier = F.pad(start, (1, 0) if by_head else (0, 0, 1, 0), value=1.0)[:, :, :, : start.shape[3]]
    x = a * (earlier[..., None] if by_head else earlier)
    z = _scores(a, k, before) @ v
    unit = torch.eye(reads.shape[-1], dtype=reads.dtype, device=reads.device)
    solved = torch.linalg.solve_triangular(
        unit - reads, torch.cat((x, z), -1), upper=False, unitriangular=True
    )
    x, z = solved.split((x.shape[-1], z.shape[-1]), -1)
    kept = (b * rest).transpose(-1, -2)  # (…, D, C)
    befores, state = _between_chunks(state, whole, added + kept @ z, kept @ x, by_head)
    return written + late @ befores + _scores(r, b, decay) @ (x @ befores + z), state


def _between_chunks(
    state: Tensor, whole: Tensor, added: Tensor, moved: Tensor | None, by_head: bool
) -> tuple[Tensor, Tensor]:
    """The states before each chunk ``(B, N, G, D, E)``, and the last: S ← (whole + moved) S + added."""
    befores = []
    decays = (whole[..., None, None] if by_head else whole[..., None]).unbind(2)
    moves = (None,) * len(decays) if moved is None else moved.unbind(2)
    for w, plus, move in zip(decays, added.unbind(2), moves, strict=True):
        befores.append(state)
        state = w * state + plus if move is None else w * state + move @ state + plus
    return torch.stack(befores, 2), state


def segments(log_w: Tensor) -> Tensor:
    """log_w ``(…, C)`` or by channel ``(B, N, G, C, D)``: the sums of log_w over j+1 … i at ``[…, i, j]``; −∞ for j > i."""
    lower, strict, spread = _pairs(log_w)
    summed = torch.where(strict, spread, 0.0).cumsum(3)
    return summed.masked_fill(~lower, -torch.inf)


def _pairs(decay: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which pairs of steps have i ≥ j, and i > j, ``(C, C[, 1])``; and the decay of step i at ``[…, i, j[, D]]``."""
    size = decay.shape[3]
    lower = torch.ones(size, size, dtype=torch.bool, device=decay.device).tril()
    strict = lower.tril(-1)
    if decay.dim() == 5:
        lower, strict = lower[..., None], strict[..., None]
    return lower, strict, decay.unsqueeze(4).expand(*decay.shape[:4], size, *decay.shape[4:])


def _scores(x: Tensor, y: Tensor, decay: Tensor) -> Tensor:
    """Σ_d x_id y_jd decay_ij[d]: ``(…, i, j)``."""
    if decay.dim() == x.dim():
        return (x @ y.transpose(-1, -2)) * decay
    return torch.einsum("...id,...jd,...ijd->...ij", x, y, decay)


def _chunks(x: Tensor, size: int, fill: float = 0.0) -> Tensor:
    """``(B, T, N, ·)`` or ``(B, T, N)`` as ``(B, N, G, C, ·)``; the last chunk is filled up, with what changes nothing."""
    missing = -x.shape[1] % size
    if missing:
        x = F.pad(x, (*[0, 0] * (x.dim() - 2), 0, missing), value=fill)
    return x.reshape(x.shape[0], -1, size, *x.shape[2:]).movedim(3, 1)


# ----------------------------------------------------------------------
# The two operations by which a matrix-valued state is written and read.
Record = Callable[..., Any]
_recorded: ContextVar[Record | None] = ContextVar("recorded", default=None)


def outer(k: Tensor, v: Tensor) -> Tensor:
    """k vᵀ: k ``(…, D)`` and v ``(…, E)`` give ``(…, D, E)``.

    In the ``step`` of a cell this writes to a matrix-valued state. The engine then knows the two factors, and never makes
    the matrix where it can run all steps at once.

    >>> an.nn.outer(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]))
    tensor([[ 3.,  5.],
            [ 6., 10.]])
    """
    if has_torch_function((k, v)):
        found: Tensor = handle_torch_function(outer, (k, v), k, v)
        return found
    record = _recorded.get()
    if record is not None:
        made: Tensor = record(outer, (k, v))
        return made
    return k.unsqueeze(-1) * v.unsqueeze(-2)


def contract(q: Tensor, state: Tensor) -> Tensor:
    """Sᵀ q: q ``(…, D)`` and S ``(…, D, E)`` give ``(…, E)``, what the matrix holds under the key q.

    In the ``step`` of a cell this reads a matrix-valued state.

    >>> contract(torch.tensor([0.0, 1.0]), torch.tensor([[3.0, 5.0], [6.0, 10.0]]))
    tensor([ 6., 10.])
    """
    if has_torch_function((q, state)):
        found: Tensor = handle_torch_function(contract, (q, state), q, state)
        return found
    return (q.unsqueeze(-2) @ state).squeeze(-2)


@contextmanager
def outer_products_by(record: Record | None) -> Iterator[None]:
    """Within, ``record(outer, (k, v))`` makes what `outer` returns; None: it computes."""
    token = _recorded.set(record)
    try:
        yield
    finally:
        _recorded.reset(token)


# ----------------------------------------------------------------------
# The matrix scan on the CPU, in C: one step after the other, and no state stored but the first of each group of steps.
STEPS = 16  # of a group, as the source has it
PER_THREAD = 1 << 16  # multiplications that are worth a thread
Pair = tuple[Tensor, Tensor]
library = CLibrary(
    "matrix_scan",
    lambda double: prelude(double) + beside("anaphora.ops", "csrc/matrix_scan.c"),
    no_memory="matrix_scan ran out of memory; use smaller batches",
)


def native_serves(
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


def native_run(
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
