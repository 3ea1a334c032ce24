"""One recording as speakers with other vocal tracts would have said it, made of its normalised frames inside the model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from anaphora.nn.attention import masks

WEIGHT = 30.0
"""Frames that the usual mean and variance count for, as where frames are normalised first (`anaphora.data.audio.usual`)."""


class Tracts(nn.Module):
    """Frames x ``(batch, time, features)``, normalised with what is usual, heard as by other vocal tracts: for each map A_v of ``maps``
    ``(voices, features, features)``

        y_t = x_t A_v,    μ = Σ_t y_t / (w + T),    σ² = (w + Σ_t y_t²) / (w + T) − μ²,    (y_t − μ) / σ

    with w = 30, as if a mean of 0 and a variance of 1 had been seen in so many frames. To warp the axis of frequencies is a map of log
    energies, and so of mfcc, too; what a map adds to all frames alike is what normalisation takes away.
    """

    maps: Tensor

    def __init__(self, maps: Tensor):
        super().__init__()
        self.register_buffer("maps", maps)

    def forward(self, x: Tensor, lengths: Tensor) -> Iterator[Tensor]:
        """Frames like x, of ``lengths`` ``(batch,)`` frames, for each map in turn."""
        real = masks.padding(lengths, x.shape[1]).unsqueeze(-1)
        count = lengths.to(x.dtype)[:, None, None] + WEIGHT
        for one in self.maps:
            y = torch.where(real, x @ one, 0.0)
            mean = y.sum(1, keepdim=True) / count
            variance = (y.square().sum(1, keepdim=True) + WEIGHT) / count - mean.square()
            yield torch.where(real, (y - mean) * variance.rsqrt(), 0.0)
