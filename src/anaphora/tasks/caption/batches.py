"""Pictures and captions as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anaphora.data.batching import padded
from anaphora.data.pictures import Pixels
from anaphora.data.pictures_augment import Augmentation
from anaphora.data.pictures_list import PictureList
from anaphora.data.pooled import HeldBatches
from anaphora.data.symbols import BOS, EOS


@dataclass(frozen=True)
class CaptionTensors:
    """A batch as the models take it; PAD past each caption's length."""

    images: Tensor
    """(batch, 3, height, width) from 0 to 1"""
    target_in: Tensor
    """(batch, time): BOS y₁ … y_T"""
    target_out: Tensor
    """(batch, time): y₁ … y_T EOS"""


@dataclass(frozen=True)
class CaptionBatch:
    """Some pictures with one caption each, as symbol ids without BOS and EOS."""

    pictures: list[Pixels]
    captions: list[list[int]]
    indices: list[int]
    """Which caption of the data each row is."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """Symbols to predict, the EOS of each row included."""
        return sum(map(len, self.captions)) + len(self)

    def shard(self, index: int, of: int) -> CaptionBatch:
        """Rows ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        return CaptionBatch(self.pictures[index::of], self.captions[index::of], self.indices[index::of])

    def tensors(self, device: torch.device | str = "cpu") -> CaptionTensors:
        return CaptionTensors(
            images_of(self.pictures, device),
            padded([[BOS, *row] for row in self.captions], device),
            padded([[*row, EOS] for row in self.captions], device),
        )


def images_of(pictures: Sequence[Pixels], device: torch.device | str) -> Tensor:
    """``(batch, 3, height, width)`` from 0 to 1; the bytes travel, the numbers are made where they are used."""
    pixels = torch.from_numpy(np.stack(pictures)).to(device)
    return pixels.permute(0, 3, 1, 2).float() / 255


class CaptionBatches(HeldBatches[CaptionBatch]):
    """An endless stream of batches; every caption of a picture is an example of its own.

    ``captions[k]`` belongs to picture ``owners[k]``. A picture is changed by ``augment`` anew in every epoch.
    """

    def __init__(
        self,
        data: PictureList,
        captions: list[list[int]],
        owners: list[int],
        augment: Augmentation,
        *,
        batch_tokens: int,
        max_tokens: int,
        seed: int,
    ):
        def make(rows: list[int]) -> CaptionBatch:
            return CaptionBatch([self._seen(row) for row in rows], [captions[row] for row in rows], rows)

        self._data, self._owners, self._augment = data, owners, augment
        lengths = [len(ids) + 1 for ids in captions]
        super().__init__(lengths, make, batch_tokens=batch_tokens, max_tokens=max_tokens, seed=seed)

    def _seen(self, row: int) -> Pixels:
        pixels = self._data.load(self._owners[row])
        return self._augment(pixels, self.epoch, row) if self._augment.active else pixels
