"""Pictures and captions as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.data.pictures import Pixels
from anaphora.data.pictures_augment import Augmentation
from anaphora.data.pictures_batches import images_of, stream_pictures
from anaphora.data.pictures_list import PictureList
from anaphora.data.pooled import HeldBatches
from anaphora.data.sending import padded
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
            padded(rows, device, first=BOS),
            padded(rows, device, last=EOS),
        )


def caption_batches(
    data: PictureList,
    captions: list[list[list[int]]],
    augmentation: Augmentation,
    *,
    batch_tokens: int,
    seed: int,
) -> HeldBatches[CaptionBatch]:
    """An endless stream of batches of pictures: see `stream_pictures`. Every epoch takes the next of a picture's captions,
    so that a batch holds as many different pictures as captions."""
    usable = [i for i, about in enumerate(captions) if about]
    lengths = [len(ids) + 1 for about in captions for ids in about]

    def make(pictures: list[Pixels], numbers: list[int], epoch: int) -> CaptionBatch:
        told = [captions[i][(epoch + i) % len(captions[i])] for i in numbers]
        return CaptionBatch(pictures, [[ids] for ids in told], numbers)

    return stream_pictures(
        data,
        usable,
        make,
        symbols=sum(lengths) / max(len(lengths), 1),
        augmentation=augmentation,
        batch_tokens=batch_tokens,
        seed=seed,
    )
