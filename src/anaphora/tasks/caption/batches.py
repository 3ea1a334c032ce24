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
from anaphora.models.memory import Memory


@dataclass(frozen=True)
class CaptionTensors:
    """A batch as the models take it; PAD past each caption's length."""

    images: Tensor
    """(pictures, 3, height, width) from 0 to 1"""
    which: Tensor
    """(captions,): the picture that each is about"""
    target_in: Tensor
    """(captions, time): BOS y₁ … y_T"""
    target_out: Tensor
    """(captions, time): y₁ … y_T EOS"""

    def repeated(self, memory: Memory) -> Memory:
        """What was seen of each picture, once for each of its captions."""
        return Memory(
            memory.annotations.index_select(0, self.which),
            memory.mask.index_select(0, self.which),
            tuple(state.index_select(1, self.which) for state in memory.last),
        )


@dataclass(frozen=True)
class CaptionBatch:
    """Some pictures with their captions as symbol ids, without BOS and EOS: a picture is seen once for all of them."""

    pictures: list[Pixels]
    captions: list[list[list[int]]]
    indices: list[int]
    """Which picture of the data each is."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """Symbols to predict, the EOS of each caption included."""
        return sum(len(ids) + 1 for about in self.captions for ids in about)

    def shard(self, index: int, of: int) -> CaptionBatch:
        """Pictures ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        return CaptionBatch(self.pictures[index::of], self.captions[index::of], self.indices[index::of])

    def tensors(self, device: torch.device | str = "cpu") -> CaptionTensors:
        rows = [ids for about in self.captions for ids in about]
        which = [place for place, about in enumerate(self.captions) for _ in about]
        return CaptionTensors(
            images_of(self.pictures, device),
            torch.tensor(which, device=device),
            padded([[BOS, *row] for row in rows], device),
            padded([[*row, EOS] for row in rows], device),
        )


def images_of(pictures: Sequence[Pixels], device: torch.device | str) -> Tensor:
    """``(batch, 3, height, width)`` from 0 to 1; the bytes travel, the numbers are made where they are used."""
    pixels = torch.from_numpy(np.stack(pictures)).to(device)
    return pixels.permute(0, 3, 1, 2).float() / 255


def caption_batches(
    data: PictureList,
    captions: list[list[list[int]]],
    augment: Augmentation,
    *,
    batch_tokens: int,
    seed: int,
) -> HeldBatches[CaptionBatch]:
    """An endless stream of batches of pictures, in an order that follows from ``seed``; every epoch takes the next of a
    picture's captions, so that a batch holds as many different pictures as captions.

    All captions count alike, as the mean of their symbols: sorted by length, pictures with equally much in them would come
    together, and that is learnt from more slowly. A picture is changed anew in every epoch.
    """
    usable = [i for i, about in enumerate(captions) if about]
    lengths = [len(ids) + 1 for about in captions for ids in about]
    usual = max(1, round(sum(lengths) / max(len(lengths), 1)))

    def make(chosen: list[int]) -> CaptionBatch:
        numbers = [usable[i] for i in chosen]
        told = [captions[i][(batches.epoch + i) % len(captions[i])] for i in numbers]
        return CaptionBatch([_seen(i) for i in numbers], [[ids] for ids in told], numbers)

    def _seen(number: int) -> Pixels:
        pixels = data.load(number)
        return augment(pixels, batches.epoch, number) if augment.active else pixels

    batches = HeldBatches([usual] * len(usable), make, batch_tokens=batch_tokens, max_tokens=usual, seed=seed)
    return batches
