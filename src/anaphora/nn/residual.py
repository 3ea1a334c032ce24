"""Pictures to a grid of vectors: a small residual convolutional network, or one linear map of patches.

Both take pictures ``(batch, 3, H, W)`` in [0, 1] and give ``(batch, width, h, w)``, where a cell of the grid stands
for ``stride`` × ``stride`` pixels. A picture's result does not depend on the others of its batch: what is normalised
is normalised within the picture.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GROUPS = 8


class ResidualCNN(nn.Module):
    """Convolutions that halve the grid at each level, and residual connections around pairs of them (He et al. 2016).

        x⁰ = relu(N(W⁰ ∗ picture)),    xˡ = relu(N(W₂ˡ ∗ relu(N(W₁ˡ ∗ xˡ⁻¹))) + Sˡ mean₂ₓ₂ xˡ⁻¹)

    ``channels`` are those of the levels below the last, which has ``width``; N is GroupNorm (Wu & He 2018). What halves
    (W⁰ and W₁, of 4 × 4 pixels) is symmetric about the middle of the pixels that a cell stands for. With
    ``coordinates`` two more channels say where a pixel is, from −1 to 1 (Liu et al. 2018): a convolution by itself
    cannot tell.
    """

    def __init__(
        self,
        channels: Sequence[int] = (32, 64),
        *,
        width: int,
        coordinates: bool = False,
        gain: float = 1.0,
    ):
        super().__init__()
        if min(*channels, width, 1) < 1 or not channels:
            raise ValueError(
                f"ResidualCNN needs at least one level below the last, each with channels, not {channels}"
            )
        self.width, self.stride, self.coordinates = width, 2 ** (len(channels) + 1), coordinates
        self.stem = nn.Conv2d(5 if coordinates else 3, channels[0], 4, stride=2, padding=1, bias=False)
        self.norm = group_norm(channels[0])
        levels = [*channels, width]
        self.blocks = nn.ModuleList(
            ResidualBlock(below, here, gain=gain) for below, here in itertools.pairwise(levels)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.stem.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """images ``(batch, 3, H, W)`` in [0, 1] -> ``(batch, width, ⌈H/stride⌉, ⌈W/stride⌉)``."""
        x = 2 * images - 1
        if self.coordinates:
            x = torch.cat((x, _coordinates(x)), 1)
        x = F.relu(self.norm(self.stem(_even(x))))
        for block in self.blocks:
            x = block(x)
        return x


class ResidualBlock(nn.Module):
    """relu(N(W₂ ∗ relu(N(W₁ ∗ x))) + S mean₂ₓ₂ x): ``(batch, inputs, H, W)`` -> ``(batch, outputs, ⌈H/2⌉, ⌈W/2⌉)``.

    Unlike those of deep networks, the second norm does not begin as zero: the shortcuts of a few levels are no more than
    a blurred picture, and shapes would be learned late. It begins as ``gain``: below 1 a place sees little beyond itself
    at first, and attention finds objects sooner.
    """

    def __init__(self, inputs: int, outputs: int, *, gain: float = 1.0):
        super().__init__()
        self.gain = gain
        self.first = nn.Conv2d(inputs, outputs, 4, stride=2, padding=1, bias=False)
        self.first_norm = group_norm(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = group_norm(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for part in (self.first, self.second, self.shortcut):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        assert self.shortcut.bias is not None
        nn.init.zeros_(self.shortcut.bias)
        nn.init.constant_(self.second_norm.weight, self.gain)

    def forward(self, x: Tensor) -> Tensor:
        x = _even(x)
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(inner)) + self.shortcut(F.avg_pool2d(x, 2)))


class Patches(nn.Module):
    """W · patch + b for every patch of ``patch`` × ``patch`` pixels, side by side (Dosovitskiy et al. 2021)."""

    def __init__(self, width: int, patch: int):
        super().__init__()
        self.width = width
        self.stride = patch
        self.linear = nn.Conv2d(3, width, patch, stride=patch)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.linear.weight.view(self.width, -1))
        assert self.linear.bias is not None
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: Tensor) -> Tensor:
        """images ``(batch, 3, H, W)`` in [0, 1] -> ``(batch, width, ⌈H/patch⌉, ⌈W/patch⌉)``; zeros past the edge."""
        tall, wide = (-size % self.stride for size in images.shape[-2:])
        out: Tensor = self.linear(F.pad(2 * images - 1, (0, wide, 0, tall)))
        return out


def group_norm(channels: int) -> nn.GroupNorm:
    """GroupNorm with `GROUPS` groups, or as many as divide the channels."""
    return nn.GroupNorm(math.gcd(GROUPS, channels), channels)


def _even(x: Tensor) -> Tensor:
    """The same with its last row or column once more where their number is odd."""
    tall, wide = (size % 2 for size in x.shape[-2:])
    return F.pad(x, (0, wide, 0, tall), mode="replicate") if tall or wide else x


def _coordinates(x: Tensor) -> Tensor:
    """Row and column of every pixel, from −1 to 1: ``(batch, 2, H, W)``."""
    rows, columns = (
        torch.linspace(-1, 1, size, device=x.device, dtype=x.dtype) if size > 1 else x.new_zeros(1)
        for size in x.shape[-2:]
    )
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
    return grid.expand(x.shape[0], -1, -1, -1)
