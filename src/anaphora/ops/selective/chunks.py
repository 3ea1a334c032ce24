"""The selective scan by torch, a chunk of steps at a time; the backward pass computes the states of each chunk again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK = 16  # steps whose states exist at the same time


def by_chunks(
    u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """As `selective_scan`."""
    outputs = []
    recompute = torch.is_grad_enabled() and u.shape[1] > CHUNK
    for at in range(0, u.shape[1], CHUNK):
        some = [x.narrow(1, at, min(CHUNK, u.shape[1] - at)).to(state.dtype) for x in (u, delta, b, c)]
        y, state = (
            checkpoint(_chunk, some, rate, state, use_reentrant=False)
            if recompute
            else _chunk(some, rate, state)
        )
        outputs.append(y)
    return torch.cat(outputs, 1).to(u.dtype), state


def _chunk(some: Sequence[Tensor], rate: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Some steps, with the states of all of them: ``(B, C, H, N)``."""
    u, delta, b, c = some
    a = (delta[..., None] * rate).exp()
    h = (delta * u)[..., None] * b[:, :, None]
    if h.is_cpu:  # one after the other reads memory once
        states = []
        for decay, added in zip(a.unbind(1), h.unbind(1), strict=True):
            state = torch.addcmul(added, decay, state)
            states.append(state)
        return torch.einsum("bthn,btn->bth", torch.stack(states, 1), c), state
    # A GPU waits for each launch: side by side, after k rounds each step has gathered the 2^k before it.
    h = torch.cat((h[:, :1] + a[:, :1] * state[:, None], h[:, 1:]), 1)
    reach = 1
    while reach < h.shape[1]:
        h = torch.cat((h[:, :reach], h[:, reach:] + a[:, reach:] * h[:, :-reach]), 1)
        a = torch.cat((a[:, :reach], a[:, reach:] * a[:, :-reach]), 1)
        reach *= 2
    return torch.einsum("bthn,btn->bth", h, c), h[:, -1]
