"""Recurrences whose state is a matrix, in chunks of steps.

    S_t = diag(w_t) S_{t−1} + b_t (a_tᵀ S_{t−1}) + k_t v_tᵀ,        y_t = S_tᵀ r_t

S is linear in itself, so the steps of a chunk can be computed side by side by matrix products, and only the states between
chunks one after the other. Special cases: linear attention (w = 1), RetNet, Mamba-2 and mLSTM (w one number per head),
gated linear attention (w per channel), the delta rule (a = k, b = −βk) and RWKV-7 (everything).

Decays multiply; here the logarithms of the steps between two places are summed directly, never as the difference of two long
sums, so that decays of exactly 0 (log w = −∞) and near 1 are both exact. States are float32 or float64. On a GPU, cases
without a and b run as fused kernels (`kernels.matrix_scan`).

Axes: B batch, T time, N heads, D and E the sides of a state; G chunks of C steps.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.kernels import matrix_scan as fused

BY_HEAD, BY_CHANNEL = 64, 16  # steps of a chunk: decays by channel need C·C·D numbers of each


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
    """
    if (a is None) != (b is None):
        raise ValueError("matrix_scan: a and b belong together; give both or neither.")
    if a is None and chunk is None and v.shape[1] > 1 and fused.serves(r, k, v, log_w, state):
        return fused.run(r, k, v, log_w, state, _plain)
    return _plain(r, k, v, log_w, state, a, b, chunk)


def _plain(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    log_w: Tensor,
    state: Tensor | None,
    a: Tensor | None = None,
    b: Tensor | None = None,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The same by torch's own functions."""
    dtype, kind = v.dtype, torch.promote_types(v.dtype, torch.float32)
    if state is None:
        state = v.new_zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3], dtype=kind)
    time = v.shape[1]
    given = [None if x is None else x.to(kind) for x in (r, k, v, log_w, a, b)]
    if time == 1:
        first = [None if x is None else x[:, 0] for x in given]
        y, state = matrix_step(*first, state=state.to(kind))  # type: ignore[arg-type]
        return y[:, None].to(dtype), state
    size = chunk or (BY_CHANNEL if log_w.dim() == 4 else BY_HEAD)
    size = min(size, time)
    r, k, v, log_w, a, b = (None if x is None else _chunks(x, size) for x in given)  # type: ignore[assignment]
    y, state = _run(r, k, v, log_w, a, b, state.to(kind))
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
) -> tuple[Tensor, Tensor]:
    """One step: r, k, a, b ``(B, N, D)``, v ``(B, N, E)``, log_w ``(B, N)`` or ``(B, N, D)``: y ``(B, N, E)`` and the state."""
    w = log_w.exp()
    new = state * (w[..., None, None] if log_w.dim() == 2 else w[..., None]) + k[..., None] * v[..., None, :]
    if a is not None and b is not None:
        new = new + b[..., None] * torch.einsum("bnd,bnde->bne", a, state)[..., None, :]
    return torch.einsum("bnd,bnde->bne", r, new), new


def _run(
    r: Tensor, k: Tensor, v: Tensor, log_w: Tensor, a: Tensor | None, b: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Everything ``(B, N, G, C, ·)``, log_w also ``(B, N, G, C)``: y ``(B, N, G, C, E)`` and the last state."""
    by_head = log_w.dim() == 4
    between = segments(log_w)  # (…, i, j[, D]): log decay of what was written at j, at i
    from_start = log_w.cumsum(3)  # of the state before the chunk, at i
    whole = from_start[:, :, :, -1].exp()  # (…[, D]): of that state, after the chunk
    to_end = between[:, :, :, -1].exp()  # (…, j[, D])
    decay = between.exp()
    rest = to_end[..., None] if by_head else to_end
    start = from_start.exp()
    late = r * (start[..., None] if by_head else start)
    written = _scores(r, k, decay) @ v  # (…, C, E)
    added = (k * rest).transpose(-1, -2) @ v  # (…, D, E)
    if a is None or b is None:
        befores, state = _between_chunks(state, whole, added, None, by_head)
        return written + late @ befores, state
    # What a reads of the state before each step: u = X S + Z, with the reads of earlier steps of the chunk solved for.
    before = F.pad(decay, (0, 0, 1, 0) if by_head else (0, 0, 0, 0, 1, 0))[:, :, :, :-1]  # of step i − 1
    reads = _scores(a, b, before)  # strictly lower
    earlier = F.pad(from_start, (1, 0) if by_head else (0, 0, 1, 0))[:, :, :, :-1].exp()
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
    size = log_w.shape[3]
    lower = torch.ones(size, size, dtype=torch.bool, device=log_w.device).tril()
    strict = lower.tril(-1)
    if log_w.dim() == 5:
        lower, strict = lower[..., None], strict[..., None]
    spread = log_w.unsqueeze(4).expand(*log_w.shape[:4], size, *log_w.shape[4:])
    summed = torch.where(strict, spread, 0.0).cumsum(3)
    return summed.masked_fill(~lower, -torch.inf)


def _scores(x: Tensor, y: Tensor, decay: Tensor) -> Tensor:
    """Σ_d x_id y_jd decay_ij[d]: ``(…, i, j)``."""
    if decay.dim() == x.dim():
        return (x @ y.transpose(-1, -2)) * decay
    return torch.einsum("...id,...jd,...ijd->...ij", x, y, decay)


def _chunks(x: Tensor, size: int) -> Tensor:
    """``(B, T, N, ·)`` or ``(B, T, N)`` as ``(B, N, G, C, ·)``; the last chunk is filled up with zeros, which change nothing."""
    missing = -x.shape[1] % size
    if missing:
        x = F.pad(x, (*[0, 0] * (x.dim() - 2), 0, missing))
    return x.reshape(x.shape[0], -1, size, *x.shape[2:]).movedim(3, 1)
