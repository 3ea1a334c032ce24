"""How tensors of models that see or hear become ours, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.foreign.hows import Sizes


@dataclass(frozen=True)
class Squares:
    """The map of squares of pixels: theirs is a convolution ``(width, channels, side, side)``, ours a matrix whose columns
    are the pixels row by row, the channels of each side by side."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return given[0].permute(0, 2, 3, 1).flatten(1).contiguous()

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        side, channels = sizes["patch"], sizes["channels"]
        return [own.view(len(own), side, side, channels).permute(0, 3, 1, 2).contiguous()]


@dataclass(frozen=True)
class Bare:
    """Vectors that theirs keep with ``ones`` dimensions of size 1 before them; several of theirs are rows of ours."""

    ones: int = 1

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        found = [one[(0,) * self.ones] for one in given]
        return found[0] if len(found) == 1 else torch.stack(found)

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        rows = [own] if own.dim() + self.ones == 3 else list(own)
        return [one[(None,) * self.ones] for one in rows]


SQUARES = Squares()
BARE = Bare()
BARE_VECTORS = Bare(2)


@dataclass(frozen=True)
class Nothing:
    """Theirs have no such vector: ours is 0, and what became of it is not written."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return torch.zeros(sizes["hidden"])

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        return []


NOTHING = Nothing()


@dataclass(frozen=True)
class NoKeyBias:
    """Theirs have biases of queries and values only. One of keys adds the same to all scores of a query, which changes nothing,
    so ours is 0 and not written."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return torch.cat((given[0], torch.zeros_like(given[1]), given[1]))

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        queries, _, values = torch.split(own, [sizes["hidden"], sizes["kv_width"], sizes["kv_width"]])
        return [queries.contiguous(), values.contiguous()]


QV_BIAS = NoKeyBias()
