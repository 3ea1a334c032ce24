"""R-Drop (Wu et al. 2021): two passes with different dropout must predict alike."""

from __future__ import annotations

import torch
from torch import Tensor


def divergence(logits: Tensor, real: Tensor) -> Tensor:
    """Σ ½ (KL(p‖q) + KL(q‖p)) over the places that are ``real``, a scalar in float32.

    logits ``(2·rows, V)``: p the softmax of the first half, q that of the second; real ``(rows,)`` bool. With log p and log q,
    KL(p‖q) + KL(q‖p) = Σ_k (p_k − q_k)(log p_k − log q_k).
    """
    first, second = torch.log_softmax(logits.float(), -1).chunk(2)
    apart = ((first.exp() - second.exp()) * (first - second)).sum(-1)
    return 0.5 * torch.where(real, apart, 0.0).sum()
