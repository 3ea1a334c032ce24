"""Attention within a window, at a cost that grows with the window instead of the length."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.nn.attention.scaled_dot import scaled_dot


def local_scaled_dot(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    window: int,
    real: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Self-attention in which each place sees ``window`` places on either side, or before it if ``causal``.

    query, keys, values ``(batch, heads, T, d)``; real ``(batch, T)``. The same as `scaled_dot` with
    `masks.window`, in O(T · window · d): queries are taken in blocks, each with the stretch of keys that any of
    them may see.
    """
    batch, heads, length, width = query.shape
    block, after = max(window, 1), 0 if causal else window
    spare = -length % block  # the last block is filled up
    blocks, stretch = (length + spare) // block, window + block + after
    sides = (window, after + spare)

    q = (
        F.pad(query, (0, 0, 0, spare))
        .reshape(batch, heads, blocks, block, width)
        .transpose(1, 2)
        .flatten(0, 1)
    )
    k, v = (
        F.pad(x, (0, 0, *sides)).unfold(2, stretch, block).permute(0, 2, 1, 4, 3).flatten(0, 1)
        for x in (keys, values)
    )
    if real is None:
        real = torch.ones(1, length, dtype=torch.bool, device=query.device)
    seen = F.pad(real, sides).unfold(1, stretch, block)  # (batch or 1, blocks, stretch)
    distance = torch.arange(stretch, device=query.device) - window
    distance = distance - torch.arange(block, device=query.device)[:, None]
    near = (distance >= -window) & (distance <= after)
    mask = (seen.unsqueeze(2) & near).expand(batch, -1, -1, -1).flatten(0, 1).unsqueeze(1)
    out, _ = scaled_dot(q, k, v, mask, dropout=dropout)
    out = out.reshape(batch, blocks, heads, block, width).transpose(1, 2)
    return out.reshape(batch, heads, blocks * block, width)[:, :, :length]
