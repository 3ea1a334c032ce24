"""Pictures with questions as a model takes them: every picture once, with all that is asked about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.labelled_batches import tensors_of
from anaphora.data.pictures import Pixels
from anaphora.data.pictures_augment import Augmentation
from anaphora.data.pictures_list import PictureList
from anaphora.data.pooled import HeldBatches

Ids = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class Asked:
    """One picture with the questions about it, as symbols, and the numbers of their answers."""

    pixels: Pixels
    questions: list[Ids]
    answers: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class AnswerBatch:
    """Some pictures with their questions."""

    asked: list[Asked]
    indices: list[int]
    """Which picture of the data each is."""

    def __len__(self) -> int:
        return len(self.asked)

    @property
    def symbols(self) -> int:
        """The loss is summed over questions."""
        return sum(len(one.questions) for one in self.asked)

    def shard(self, index: int, of: int) -> AnswerBatch:
        """Pictures ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        return AnswerBatch(self.asked[index::of], self.indices[index::of])

    def answers(self) -> Tensor:
        """``(questions,)``, in the order of `inputs_of`."""
        return torch.tensor([answer for one in self.asked for answer in one.answers])


def inputs_of(asked: Sequence[Asked], device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images ``(pictures, 3, H, W)`` in [0, 1], which of them each question is about ``(questions,)``, the questions
    ``(questions, time)`` with EOS, padded, and their lengths ``(questions,)``."""
    pixels = torch.from_numpy(np.stack([one.pixels for one in asked])).to(device)
    images = pixels.permute(0, 3, 1, 2).float() / 255
    which = torch.tensor([place for place, one in enumerate(asked) for _ in one.questions], device=device)
    question, lengths = tensors_of([ids for one in asked for ids in one.questions], device)
    return images, which, question, lengths


def answer_batches(
    pictures: PictureList,
    questions: list[list[Ids]],
    answers: list[list[int]],
    *,
    batch_tokens: int,
    seed: int,
    augmentation: Augmentation,
) -> HeldBatches[AnswerBatch]:
    """An endless stream of batches of pictures, each with its questions, in an order that follows from ``seed``.

    All pictures count alike, as the mean of the symbols asked about one: sorting them would bring together scenes of
    which equally much can be asked.
    """
    usable = [i for i, about in enumerate(questions) if about]
    usual = max(1, round(sum(len(ids) + 1 for about in questions for ids in about) / max(len(usable), 1)))

    def make(chosen: list[int]) -> AnswerBatch:
        numbers = [usable[i] for i in chosen]
        return AnswerBatch([_asked(number) for number in numbers], numbers)

    def _asked(number: int) -> Asked:
        pixels = pictures.load(number)
        if augmentation.active:
            pixels = augmentation(pixels, batches.epoch, number)
        return Asked(pixels, questions[number], answers[number])

    batches = HeldBatches([usual] * len(usable), make, batch_tokens=batch_tokens, max_tokens=usual, seed=seed)
    return batches
