"""Recurrences whose state is a matrix, in chunks of steps, by torch's own functions.

S is linear in itself, so the steps of a chunk can be computed side by side by matrix products, and only the states between
chunks one after the other. What the delta rule reads of the steps before within its chunk is solved for: the triangular
system of the WY representation (Yang et al. 2024).

Decays multiply; here the logarithms of the steps between two places are summed directly, never as the difference of two long
sums, so that decays of exactly 0 (log w = −∞) and near 1 are both exact. Decays that are given themselves, not by their
logarithms, are multiplied and may have any sign. States are float32 or float64.

Axes: B batch, T time, N heads, D and E the sides of a state; G chunks of C steps.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

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
