"""A published Vision Transformer as the part that sees."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from anaphora.models.looking import PatchEncoder
from anaphora.models.memory import Memory
from anaphora.models.seeing import PictureEncoder


class PublicEye(PictureEncoder):
    """a_p = W h_p + b for every square p of a picture, with h the last states of a `PatchEncoder`; its vectors before the squares
    are read by it and not passed on. ``mean`` and ``scale``: of each channel, in numbers from 0 to 255."""

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        network: PatchEncoder,
        *,
        size: tuple[int, int],
        mean: Sequence[float],
        scale: Sequence[float],
        width: int,
    ):
        nn.Module.__init__(self)
        self.network = network  # type: ignore[assignment]
        self.size = size
        self.grid = (size[0] // network.patch, size[1] // network.patch)
        self.width = self.hidden = width
        self.stack = None
        self.map = nn.Linear(network.width, width)
        self.register_buffer("mean", torch.tensor(list(mean)), persistent=False)
        self.register_buffer("scale", torch.tensor(list(scale)), persistent=False)

    def reset_parameters(self) -> None:
        """The weights of the network are given."""

    def forward(self, images: Tensor, lengths: Tensor | None = None) -> Memory:
        """images ``(batch, 3, H, W)`` in [0, 1] -> annotations ``(batch, h·w, width)``, all of them real."""
        if images.shape[-2:] != self.size:
            raise ValueError(f"PublicEye was made for pictures of {self.size}, not {images.shape[-2:]}")
        pixels = (images.permute(0, 2, 3, 1) * 255 - self.mean) / self.scale
        states: Tensor = self.network(pixels, torch.empty(0)).annotations
        seen = self.map(states[:, -self.grid[0] * self.grid[1] :])  # (batch, squares, width)
        mask = torch.ones(seen.shape[:2], dtype=torch.bool, device=seen.device)
        return Memory(seen, mask, (seen.mean(1)[None],))
