"""Small windows onto a picture: two banks of filters, one along the rows and one along the columns, read a patch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Looks:
    """What was seen of a picture in T looks, one after the other.

    states ``(batch, T, hidden)`` after each; windows ``(batch, T, 3)``: x and y of the centre and the side of what was
    looked at, in pixels from the left upper corner. Of places that were drawn, log_prob ``(batch, T)`` and baseline
    ``(batch, T)``, the cost that was expected before drawing (both 0 for a look that was not drawn); None where no
    place is drawn at all.
    """

    states: Tensor
    windows: Tensor
    log_prob: Tensor | None = None
    baseline: Tensor | None = None


def filtered(picture: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """F_y X F_xᵀ for every channel: picture ``(batch, rows, columns, channels)``, down ``(batch, n, rows)`` and across
    ``(batch, m, columns)`` -> patch ``(batch, n, m, channels)``."""
    rows = torch.bmm(down, picture.flatten(2)).view(*down.shape[:2], *picture.shape[2:])
    return torch.matmul(across.unsqueeze(1), rows)


def tents(centre: Tensor, count: int, spacing: int, size: int) -> Tensor:
    """Filters ``(batch, count, size)`` that interpolate, or average where they lie further than a pixel apart:

        F[i, a] = max(0, 1 − |a − μ_i|/s)/s,    μ_i = centre + (i − (count − 1)/2)·s

    for pixels a = 0 … size − 1 and a centre ``(batch,)`` counted like them. They sum to one, less where they reach past an edge.
    """
    places = torch.arange(count, device=centre.device, dtype=centre.dtype) - (count - 1) / 2
    means = centre[:, None] + places * spacing
    pixels = torch.arange(size, device=centre.device, dtype=centre.dtype)
    return (1 - (pixels - means[..., None]).abs() / spacing).clamp(min=0) / spacing


def gaussians(centre: Tensor, count: int, stride: Tensor, variance: Tensor, size: int) -> Tensor:
    """Filters ``(batch, count, size)`` of normal shape (Gregor et al. 2015, equations 19, 20, 25, 26):

        F[i, a] = exp(−(a − μ_i)²/2σ²)/Z_i,    μ_i = centre + (i − (count − 1)/2)·δ

    centre, stride δ and variance σ² ``(batch,)`` in pixels. Each sums to one over the pixels there are, however far
    outside the picture its mean lies.
    """
    places = torch.arange(count, device=centre.device, dtype=centre.dtype) - (count - 1) / 2
    means = centre[:, None] + places * stride[:, None]
    pixels = torch.arange(size, device=centre.device, dtype=centre.dtype)
    exponents = -((pixels - means[..., None]) ** 2) / (2 * variance[:, None, None])
    return torch.softmax(exponents, -1)
