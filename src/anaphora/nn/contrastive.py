"""The contrastive loss: vectors that belong together are to be nearer than any others."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def similarities(anchors: Tensor, positives: Tensor) -> Tensor:
    """Cosines ``(n, m)`` of vectors ``(n, size)`` and ``(m, size)``, in float32 also under autocast."""
    with torch.autocast(anchors.device.type, enabled=False):  # in bfloat16 a cosine has two digits
        return F.normalize(anchors.float(), dim=-1) @ F.normalize(positives.float(), dim=-1).T


def contrastive_losses(scores: Tensor, alike: Tensor) -> Tensor:
    """One loss for each row of ``scores`` s ``(n, n)``, cosines of anchor i and positive j over a temperature:

        L_i = −½ Σ_j q_ij (log softmax_j(s_ij) + log softmax_j(s_ji)),    q_ij = [i ~ j] / Σ_k [i ~ k]

    ``alike`` ``(n, n)`` is i ~ j, true on the diagonal. Where it is true nowhere else, this is InfoNCE with the other rows as
    negatives (van den Oord 2018), in both directions; with i ~ j for rows of one label it is the supervised contrastive loss
    (Khosla 2020).

        losses = contrastive_losses(similarities(a, b) / 0.05, torch.eye(len(a), dtype=torch.bool))
    """
    wanted = alike.to(scores) / alike.sum(1, keepdim=True)
    return -0.5 * (wanted * (scores.log_softmax(1) + scores.T.log_softmax(1))).sum(1)
