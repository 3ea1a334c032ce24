"""Losses of a linear model's scores z, with the slope and the curvature of each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""z and truth, both ``(texts, outputs)`` -> ∂loss/∂z and ∂²loss/∂z² of the same shape."""


def _logistic(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """log(1 + e^{∓z})."""
    p = torch.sigmoid(z)
    return p - truth, p * (1 - p)


def _squared_hinge(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """max(0, 1 ∓ z)²."""
    sign = 2 * truth - 1
    short = (1 - sign * z).clamp_min(0)
    return -2 * sign * short, 2.0 * (short > 0)


def _squared(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """½ (z − y)²."""
    return z - truth, torch.ones_like(z)


def weighted(loss: Loss, weights: Tensor) -> Loss:
    """The loss of each text and output times ``weights`` ``(texts, outputs)``, or ``(texts, 1)``."""

    def found(z: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        slope, curve = loss(z, truth)
        return slope * weights, curve * weights

    return found


LOSSES: dict[str, Loss] = {"logistic": _logistic, "squared_hinge": _squared_hinge, "squared": _squared}
