"""Attention whose rows do not depend on the batch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from anaphora.ops.invariant.arguments import cast, product_precision, programs, serves
from anaphora.ops.invariant.products import multiply
from anaphora.ops.invariant.rows import over_row

WIDEST = (
    128  # values of an attention head that its program takes; wider heads are computed product by product
)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """As scaled_dot_product_attention; a query that sees no key gives zeros."""
    fits = serves(query, key, value) and query.dim() in (3, 4) and not dropout_p and not enable_gqa
    if not fits or query.shape[:-2] != key.shape[:-2]:
        return NotImplemented
    q, k, v = cast(query, key, value)
    if q.dtype == torch.float64 or len({q.dtype, k.dtype, v.dtype}) > 1:
        return NotImplemented
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if max(q.shape[-1], v.shape[-1]) > WIDEST:
        return _attention_in_parts(q, k, v, attn_mask, is_causal, scale)
    flat = q.dim() == 3
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*q.shape[:-1], k.shape[-2])
    if flat:
        q, k, v = (t.unsqueeze(1) for t in (q, k, v))
        attn_mask = None if attn_mask is None else attn_mask.unsqueeze(1)
    q, k, v = (t if t.stride(3) == 1 else t.contiguous() for t in (q, k, v))
    found: Tensor = programs().attention(q, k, v, attn_mask, is_causal, scale, product_precision())
    return found.squeeze(1) if flat else found


def _attention_in_parts(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    scores = multiply(q, k.transpose(-2, -1), None, product_precision(), torch.float32) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril().logical_not()
        scores = scores.masked_fill(hidden, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = over_row("softmax", scores, -1, torch.float32)
    weights = weights.masked_fill(scores.amax(-1, keepdim=True) == -math.inf, 0.0)
    return multiply(weights.to(v.dtype), v, None, product_precision())
