"""Features that do not depend on loudness and channel: zero mean and unit variance over each utterance."""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-3
"""Least standard deviation that is divided by: a feature that never changes stays zero."""


def normalise(features: Tensor, lengths: Tensor | None = None) -> Tensor:
    """``features`` (B, T, F), of which the first ``lengths`` (B,) frames are real (None: all), as

        (x_tf − μ_f) / max(σ_f, 0.001),    μ_f, σ_f over the T real frames of the same utterance

    Frames after the end are zero. A row does not depend on the others.
    """
    if lengths is None:
        real = features.new_ones(features.shape[:2], dtype=torch.bool)[..., None]
    else:
        real = (torch.arange(features.shape[1], device=features.device) < lengths[:, None])[..., None]
    count = real.sum(1, keepdim=True).clamp_min(1)
    zero = features.new_zeros(())
    x = torch.where(real, features, zero)
    x = torch.where(real, x - x.sum(1, keepdim=True) / count, zero)
    deviation = (x.square().sum(1, keepdim=True) / count).sqrt()
    return x / deviation.clamp_min(LEAST)
