"""Scaled dot-product attention (Vaswani et al. 2017, eq. 1), fused and written out."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.native.following import FORWARD_AD, TORCH_FUNC, following
from anaphora.nn.attention.scores import Attention, masked_softmax
from anaphora.ops.attention import attend


def scaled_dot(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    weights: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q Kᵀ / √d_k + bias) V over the last two dimensions; with ``scale`` that times Q Kᵀ instead of 1/√d_k.

    Args:
        query, keys, values: ``(…, Q, d)``, ``(…, K, d)`` and ``(…, K, Dv)``.
        mask: True where a key may be seen, broadcast to ``(…, Q, K)``; a query that may see nothing gets zeros.
        bias: added to the scores, broadcast to ``(…, Q, K)``.
        causal: also hide the keys after the query's own place (Q = K).
        dropout: share of the weights that is set to zero, also outside of training.
        weights: also return the weights; the product is then written out, otherwise PyTorch's fused kernel computes the same. It has
            no forward-mode derivative, so that these and `torch.func` have the product written out, too.
        scale: see above.

    Returns the context ``(…, Q, Dv)``, and the weights ``(…, Q, K)`` before dropout or None.

    >>> q, k, v = torch.zeros(2, 3, 4), torch.zeros(2, 5, 4), torch.ones(2, 5, 6)
    >>> context, weights = an.nn.attention.scaled_dot(q, k, v, weights=True)
    >>> context.shape, weights[0, 0]
    (torch.Size([2, 3, 6]), tensor([0.2000, 0.2000, 0.2000, 0.2000, 0.2000]))
    """
    if not weights and following(query, keys, values) not in (FORWARD_AD, TORCH_FUNC):
        return _fused(query, keys, values, mask, bias, causal, dropout, scale), None
    scores = torch.matmul(query, keys.transpose(-2, -1))
    scores = scores / math.sqrt(query.shape[-1]) if scale is None else scores * scale
    if bias is not None:
        scores = scores + bias
    if causal:
        mask = _below_diagonal(scores) if mask is None else mask & _below_diagonal(scores)
    alpha = masked_softmax(scores, mask)
    return torch.matmul(F.dropout(alpha, dropout), values), alpha if weights else None


def _fused(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    causal: bool,
    dropout: float,
    scale: float | None,
) -> Tensor:
    if causal and (mask is not None or bias is not None):  # the kernel takes either the flag or a mask
        seen = torch.ones(query.shape[-2], keys.shape[-2], dtype=torch.bool, device=query.device).tril()
        mask, causal = (seen if mask is None else mask & seen), False
    empty = None
    if mask is not None and query.is_cuda:
        # Where a query may see nothing, the kernels there disagree (zeros, NaN, a mean): let it see everything,
        # so that no NaN arises forward or backward, and put the zeros afterwards.
        empty = ~mask.any(-1, keepdim=True)
        mask = mask | empty
    added = mask
    if bias is not None:
        added = bias.to(query.dtype) if mask is None else bias.to(query.dtype).masked_fill(~mask, -math.inf)
    context = attend(query, keys, values, added, dropout=dropout, causal=causal, scale=scale)
    return context if empty is None else context.masked_fill(empty, 0.0)


def _below_diagonal(scores: Tensor) -> Tensor:
    return torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()


class ScaledDot(Attention):
    """score(q, k) = q · k / √d_k.

    If the entries of q and k are independent with mean 0 and variance 1, q · k has variance d_k: without
    the division the softmax saturates as vectors get wider.

    >>> an.nn.attention.ScaledDot()(torch.zeros(1, 2, 4), torch.zeros(1, 5, 4))[1].shape
    torch.Size([1, 2, 5])
    """

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        return torch.matmul(query, prepared.transpose(-2, -1)) / math.sqrt(query.shape[-1])


# ----------------------------------------------------------------------
# Attention within a window, at a cost that grows with the window instead of the length.
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
