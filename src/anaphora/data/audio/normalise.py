"""Features that do not depend on loudness, or on loudness and channel, of an utterance."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from anaphora.data.audio.preprocessing import LEAST, LOUD

DEPTH, SCALE = 5.0, 3.0
"""Nats (22 dB) below the mean of speech at which sound is cut off, and what is divided by."""

Normalisation = Literal["features", "means", "level", "speech", "adapted", "running", "unit", "none"]


def normalise(features: Tensor, lengths: Tensor | None = None, how: Normalisation = "features") -> Tensor:
    """``features`` (B, T, F), of which the first ``lengths`` (B,) frames are real (None: all), as

        "features"   (x_tf − μ_f) / max(σ_f, 0.001),    μ_f, σ_f over the T real frames of the same utterance
        "means"      x_tf − μ_f
        "level"      (x_tf − μ) / max(σ, 0.001),        μ, σ over all T·F numbers of the same utterance
        "speech"     max(x_tf − μ, −5) / 3,             μ over the frames at most 20 dB quieter than the loudest: log energies
        "unit"       (x_tf − μ) / √(σ² + 1e-7),         as `transformers` normalises samples; in float64
        "none"       x_tf

    The first takes away loudness and channel. But in a short utterance μ_f and σ_f are as much of the words in it as of
    the channel: of a single word "level" takes away its loudness alone, and "speech" does so whatever stands around the word:
    pauses, and noise that is weaker by 22 dB, change nothing. Frames after the end are zero. A row does not
    depend on the others.
    """
    if how in ("adapted", "running"):
        raise ValueError(f"normalise: {how} needs to know what is usual; see Usual.")
    real = _real(features, lengths).expand_as(features)
    if how == "none":
        return torch.where(real, features, features.new_zeros(()))
    if how == "unit":
        return _unit(features.double(), real).to(features.dtype)
    if how == "speech":
        return _speech(features, real)
    over = (1, 2) if how == "level" else (1,)
    count = real.sum(over, keepdim=True).clamp_min(1)
    zero = features.new_zeros(())
    x = torch.where(real, features, zero)
    x = torch.where(real, x - x.sum(over, keepdim=True) / count, zero)
    if how == "means":
        return x
    deviation = (x.square().sum(over, keepdim=True) / count).sqrt()
    return x / deviation.clamp_min(LEAST)


def _speech(x: Tensor, real: Tensor) -> Tensor:
    zero = x.new_zeros(())
    loudness = torch.where(real, x, x.new_full((), -torch.inf)).logsumexp(2, keepdim=True)  # (B, T, 1)
    loud = (loudness >= loudness.amax(1, keepdim=True) - LOUD) & real
    mean = torch.where(loud, x, zero).sum((1, 2), keepdim=True) / loud.sum((1, 2), keepdim=True).clamp_min(1)
    return torch.where(real, (x - mean).clamp_min(-DEPTH) / SCALE, zero)


def _unit(x: Tensor, real: Tensor) -> Tensor:
    count, zero = real.sum((1, 2), keepdim=True).clamp_min(1), x.new_zeros(())
    x = torch.where(real, x - torch.where(real, x, zero).sum((1, 2), keepdim=True) / count, zero)
    return x / (x.square().sum((1, 2), keepdim=True) / count + 1e-7).sqrt()


def _real(features: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, 1), True at frames before the end."""
    if lengths is None:
        return features.new_ones(features.shape[:2], dtype=torch.bool)[..., None]
    return (torch.arange(features.shape[1], device=features.device) < lengths[:, None])[..., None]
