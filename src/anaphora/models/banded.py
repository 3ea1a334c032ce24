"""What reads sound as a picture of time and bands, and so hears a resonance alike wherever it lies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.models.listener import Subsampling
from anaphora.nn.attention import masks

CHANNELS = (16, 32)
"""Filters of the two convolutions, of each network."""
POINTS = 20
"""Places on the axis of frequencies at which the spectrum is read that cepstra describe."""
_KERNELS = ((3, 5), (3, 3))  # frames and bands that a convolution sees


class BandConvolutions(nn.Module):
    """Two convolutions over time and bands, the larger of two neighbouring bands after each, and a linear map of all that is left of a frame:

        y_t = relu(W flatten(pool(relu(conv₂(pool(relu(conv₁(S x)))))))_t + b),    pool(z)_m = max(z_{2m}, z_{2m+1})

    A filter slides along the frequencies as well as along time, and pooling forgets which of two bands answered: of a speaker whose
    resonances lie a band higher the same is heard. x ``(batch, time, streams · features)`` are ``streams`` of frames next to each other,
    such as features and how they change, each of them a channel of the picture; ``spectrum`` S ``(features, bands)`` turns each stream
    into bands (None: its features are bands). y is ``(batch, ⌈time / factor⌉, members · width)``, ``factor`` being 1, 2 or 4 and ``width``
    the numbers of each of ``members`` networks, which read the same frames side by side.
    """

    spectrum: Tensor

    def __init__(
        self,
        features: int,
        width: int,
        factor: int,
        *,
        streams: int = 1,
        members: int = 1,
        spectrum: Tensor | None = None,
    ):
        super().__init__()
        if factor not in (1, 2, 4):
            raise ValueError(
                f"BandConvolutions leave each, every second or every fourth frame, not every {factor}th"
            )
        self.factor, self.width, self.streams, self.members = factor, width * members, streams, members
        self.strides = (1 + (factor == 4), 1 + (factor > 1))
        self.register_buffer("spectrum", torch.eye(features) if spectrum is None else spectrum)
        bands = self.spectrum.shape[1]
        if bands < 2:
            raise ValueError("there must be at least two bands to slide along")
        sizes = (streams, *(members * channels for channels in CHANNELS))
        self.layers = nn.ModuleList(
            nn.Conv2d(below, here, (long, wide), (stride, 1), (long // 2, wide // 2), groups=groups)
            for below, here, (long, wide), stride, groups in zip(
                sizes, sizes[1:], _KERNELS, self.strides, (1, members), strict=False
            )
        )
        left = math.ceil(math.ceil(bands / 2) / 2)
        self.linear = nn.Conv1d(sizes[-1] * left, self.width, 1, groups=members)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x ``(batch, time, streams · features)``, lengths ``(batch,)``."""
        pictures = x.reshape(*x.shape[:2], self.streams, -1) @ self.spectrum
        y = pictures.transpose(1, 2)  # (batch, channels, time, bands)
        for layer, stride in zip(self.layers, self.strides, strict=True):
            y = y.masked_fill(~masks.padding(lengths, y.shape[2])[:, None, :, None], 0.0)
            y = F.max_pool2d(F.relu(layer(y)), (1, 2), ceil_mode=True)
            lengths = (lengths + stride - 1) // stride
        # the channels and bands of a network together, as the linear maps of the networks are apart
        parts = y.transpose(2, 3).flatten(1, 2)  # (batch, members · …, time)
        return F.relu(self.linear(parts)).transpose(1, 2), lengths


class BesideBands(nn.Module):
    """Networks side by side, of which the first read frames as they are and the others as a picture: y = [plain(x); banded(x)]."""

    def __init__(self, plain: Subsampling, banded: BandConvolutions):
        super().__init__()
        self.plain, self.banded = plain, banded
        self.factor, self.width = plain.factor, plain.width + banded.width

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x ``(batch, time, features)``, lengths ``(batch,)``."""
        one, fewer = self.plain(x, lengths)
        return torch.cat((one, self.banded(x, lengths)[0]), -1), fewer


def smooth_spectrum(cosines: Tensor, deviations: Sequence[float]) -> Tensor:
    """S ``(count, POINTS)`` that turns normalised cepstra into the smooth spectrum which they describe, its numbers about as large as theirs.

    cosines ``(bands, count)``: the cosine transform that made them; deviations ``(count,)``: what normalising divided each of them by.
    """
    back = cosines.t() * torch.as_tensor(deviations, dtype=cosines.dtype)[:, None]
    points = F.interpolate(back[None], size=POINTS, mode="linear", align_corners=True)[0]
    found: Tensor = points / points.norm(dim=0).mean()
    return found
