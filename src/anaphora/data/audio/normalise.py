"""Features that do not depend on loudness and channel: zero mean and unit variance over each utterance."""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-3
"""Least standard deviation that is divided by: a feature that never changes stays zero."""


def normalise(features: Tensor, lengths: Tensor | None = None, *, variance: bool = True) -> Tensor:
    """``features`` (B, T, F), of which the first ``lengths`` (B,) frames are real (None: all), as

        (x_tf − μ_f) / max(σ_f, 0.001),    μ_f, σ_f over the T real frames of the same utterance

    or, without ``variance``, as x_tf − μ_f alone: in a short utterance σ_f says more of the words and pauses in it than
    of the speaker. Frames after the end are zero. A row does not depend on the others.
    """
    real = _real(features, lengths)
    count = real.sum(1, keepdim=True).clamp_min(1)
    zero = features.new_zeros(())
    x = torch.where(real, features, zero)
    x = torch.where(real, x - x.sum(1, keepdim=True) / count, zero)
    if not variance:
        return x
    deviation = (x.square().sum(1, keepdim=True) / count).sqrt()
    return x / deviation.clamp_min(LEAST)


def _real(features: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, 1), True at frames before the end."""
    if lengths is None:
        return features.new_ones(features.shape[:2], dtype=torch.bool)[..., None]
    return (torch.arange(features.shape[1], device=features.device) < lengths[:, None])[..., None]
