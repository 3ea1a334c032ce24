"""log Σ_y exp s(y) in the log domain: slow, differentiable any number of times, right for any scores."""

from __future__ import annotations

import torch
from torch import Tensor


def log_partition(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> Tensor:
    """log Z ``(batch,)`` by the forward recursion, with −inf scores allowed.

    α_1 = start + e_1,    α_t[j] = e_t[j] + log Σ_i exp(α_{t−1}[i] + transitions[i, j])
    """
    first, *rest = emissions.unbind(1)
    alpha = start + first
    for t, emitted in enumerate(rest, 1):
        moved = emitted + logsumexp(alpha.unsqueeze(2) + transitions, 1)
        alpha = torch.where((t < lengths)[:, None], moved, alpha)
    total = logsumexp(alpha + end, 1)
    return torch.where(lengths > 0, total, torch.zeros_like(total))


def logsumexp(x: Tensor, dim: int) -> Tensor:
    """log Σ exp, with a zero gradient instead of NaN where everything is −inf."""
    nothing = (x == -torch.inf).all(dim, keepdim=True)
    total = torch.logsumexp(x.masked_fill(nothing, 0.0), dim)
    return total.masked_fill(nothing.squeeze(dim), -torch.inf)
