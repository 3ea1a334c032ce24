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
from anaphora.data.pictures_batches import images_of, stream_pictures
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
    images = images_of([one.pixels for one in asked], device)
    which = torch.tensor([place for place, one in enumerate(asked) for _ in one.questions], device=device)
    question, lengths = tensors_of([ids for one in asked for ids in one.questions], device)
    return images, which, question, lengths


def answer_batches(
    pictures: PictureList,
    questions: list[list[Ids]],
    answers: list[list[int]],
    augmentation: Augmentation,
    *,
    batch_tokens: int,
    seed: int,
) -> HeldBatches[AnswerBatch]:
    """An endless stream of batches of pictures, each with all its questions: see `stream_pictures`."""
    usable = [i for i, about in enumerate(questions) if about]
    symbols = sum(len(ids) + 1 for about in questions for ids in about)

    def make(seen: list[Pixels], numbers: list[int], epoch: int) -> AnswerBatch:
        asked = [Asked(p, questions[i], answers[i]) for p, i in zip(seen, numbers, strict=True)]
        return AnswerBatch(asked, numbers)

    return stream_pictures(
        pictures,
        usable,
        make,
        symbols=symbols / max(len(usable), 1),
        augmentation=augmentation,
        batch_tokens=batch_tokens,
        seed=seed,
    )
