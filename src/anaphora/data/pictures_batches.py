"""Pictures as tensors, and an endless stream of batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from anaphora.data.pictures import Pixels
from anaphora.data.pictures_augment import Augmentation
from anaphora.data.pictures_list import PictureList
from anaphora.data.pooled import HeldBatches
from anaphora.data.sending import send

B = TypeVar("B")


def images_of(pictures: Sequence[Pixels], device: torch.device | str) -> Tensor:
    """``(batch, 3, height, width)`` from 0 to 1; the bytes travel, the numbers are made where they are used."""
    pixels = send(np.stack(pictures), device)
    return pixels.permute(0, 3, 1, 2).float() / 255


def stream_pictures(
    data: PictureList,
    usable: Sequence[int],
    make: Callable[[list[Pixels], list[int], int], B],
    *,
    symbols: float,
    augmentation: Augmentation,
    batch_tokens: int,
    seed: int,
) -> HeldBatches[B]:
    """An endless stream of batches of the ``usable`` pictures, in an order that follows from ``seed``; ``make`` is given
    their pixels, their numbers and the epoch. A picture is changed differently in every epoch.

    All pictures count alike, as ``symbols``, the mean of what is said about one: sorted by length, scenes with equally
    much in them would come together, and that is learned from more slowly.
    """
    usual = max(1, round(symbols))

    def chosen(places: list[int]) -> B:
        numbers = [usable[i] for i in places]
        return make([_seen(number) for number in numbers], numbers, batches.epoch)

    def _seen(number: int) -> Pixels:
        pixels = data.load(number)
        return augmentation(pixels, batches.epoch, number) if augmentation.active else pixels

    batches = HeldBatches(
        [usual] * len(usable), chosen, batch_tokens=batch_tokens, max_tokens=usual, seed=seed
    )
    return batches
