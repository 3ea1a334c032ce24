"""What reads each frame by itself, before the layers that read the frames in order.

Frames are ``(batch, time, features)`` and become ``(batch, time, width)``. No frame sees another, so that padding and the
other rows of a batch never matter.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.errors import DataError

CHANNELS = (8, 16)


class DenseFrames(nn.Module):
    """y = relu(W x + b) for every frame: ``(batch, time, features)`` -> ``(batch, time, width)``."""

    def __init__(self, features: int, width: int):
        super().__init__()
        self.linear = nn.Linear(features, width)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(x))


class ConvolvedFrames(nn.Module):
    """Two convolutions that halve every frame, and a linear map of what is left:

        y = relu(W flatten(relu(conv₂(relu(conv₁(x))))) + b)

    ``(batch, time, features)`` -> ``(batch, time, width)``. A frame is a row of numbers, or with ``size`` a picture of so
    many rows and columns, given row by row, its channels (if there are several) last.
    """

    def __init__(self, features: int, width: int, size: tuple[int, int] | None = None):
        super().__init__()
        self.shape = (features, 1) if size is None else (*size, features // (size[0] * size[1]))
        if size is not None and (not self.shape[-1] or features % (size[0] * size[1])):
            raise DataError(
                f"frame = {size[0]}x{size[1]} has {size[0] * size[1]} values, but the frames of the data have {features}; set "
                "frame to their rows and columns."
            )
        convolution = nn.Conv1d if size is None else nn.Conv2d
        inputs = (self.shape[-1], *CHANNELS)
        self.layers = nn.ModuleList(
            convolution(below, here, 3, stride=2, padding=1)
            for below, here in zip(inputs, CHANNELS, strict=False)
        )
        left = CHANNELS[-1]
        for side in self.shape[:-1]:
            left *= -(-side // 2 ** len(CHANNELS))
        self.linear = nn.Linear(left, width)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        frames = x.reshape(-1, *self.shape).movedim(-1, 1)  # (batch · time, channels, rows[, columns])
        for layer in self.layers:
            frames = F.relu(layer(frames))
        y: Tensor = F.relu(self.linear(frames.flatten(1)))
        return y.view(*x.shape[:2], self.width)


class Framed(nn.Module):
    """A network on every frame, and a front end that leaves fewer of them; as `Stacking`."""

    def __init__(self, network: DenseFrames | ConvolvedFrames, front: nn.Module):
        super().__init__()
        self.network, self.front = network, front
        self.factor, self.width = int(front.factor), int(front.width)  # type: ignore[arg-type]

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x ``(batch, time, features)``, lengths ``(batch,)``."""
        found: tuple[Tensor, Tensor] = self.front(torch.as_tensor(self.network(x)), lengths)
        return found
