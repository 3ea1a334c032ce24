"""What the training loop needs for answering: the loss, the dev measures and the samples; and how questions are
answered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.data.batches.padded import Augmentation, images_of, stream_pictures, tensors_of
from anaphora.data.batches.pooled import HeldBatches
from anaphora.data.labelled_targets import UNKNOWN
from anaphora.data.pictures import PictureList, Pixels
from anaphora.kinds.measures.classes import answer_measures
from anaphora.models.answerer import PictureAnswerer
from anaphora.tasks.answer.info import AnswererSettings
from anaphora.training.objective import LossSum
from anaphora.training.own import ItemLoss, chosen_metric, own_loss, own_measures

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


SHOWN = 4
PICTURES, QUESTIONS = 64, 256
"""How many are answered together; results do not depend on it."""
Numbers = np.ndarray[Any, np.dtype[np.float64]]


class AnswerObjective:
    """−log softmax(z)_y of the right answer y, per question. ``dev`` are pictures with questions and their answers,
    ``texts`` the rows of these pictures as they were written."""

    counts = "questions"

    def __init__(self, settings: AnswererSettings, names: Sequence[str], dev: list[Asked], texts: list[Any]):
        self.settings, self._names, self._dev = settings, list(names), dev
        self.metric, greater = chosen_metric(settings)
        self.greater_is_better = self.metric != "loss" if greater is None else greater
        self._own_loss = own_loss(settings)
        self.chance = math.log(len(names))
        self._rows = [row for rows in texts for row in rows]
        self._found: list[int] = []

    def loss(self, model: PictureAnswerer, batch: AnswerBatch) -> LossSum:
        device = next(model.parameters()).device
        scores = model(*inputs_of(batch.asked, device)).float()
        smoothing = self.settings.label_smoothing if model.training else 0.0
        return loss_of(scores, batch.answers().to(device), smoothing, self._own_loss)

    @torch.no_grad()
    def evaluate(self, model: PictureAnswerer) -> dict[str, float]:
        scores = score_questions(model, self._dev)
        truth = np.array([answer for one in self._dev for answer in one.answers])
        part = loss_of(torch.from_numpy(scores).float(), torch.from_numpy(truth), 0.0, self._own_loss)
        self._found = scores.argmax(1).tolist()
        answers = [self._names[answer] for answer in self._found]
        measured = answer_measures(self._rows, answers)
        found = {"loss": float(part.total) / max(float(part.count), 1e-9), **measured.numbers()}
        return found | own_measures(self.settings, [row[1] for row in self._rows], answers, found)

    def samples(self, model: PictureAnswerer) -> list[dict[str, str]]:
        """The first dev questions with the answers of the last evaluation."""
        return [
            {"source": row[0], "reference": row[1], "output": self._names[answer]}
            for row, answer in zip(self._rows[:SHOWN], self._found[:SHOWN], strict=True)
        ]


def loss_of(scores: Tensor, truth: Tensor, smoothing: float = 0.0, own: ItemLoss | None = None) -> LossSum:
    """Cross entropy (or the user's own loss) of scores ``(questions, answers)``; questions whose answer training does
    not know count nothing."""
    known = truth != UNKNOWN
    if own:
        return LossSum(own(scores[known], truth[known]).sum(), known.sum())
    total = F.cross_entropy(scores, truth, ignore_index=UNKNOWN, label_smoothing=smoothing, reduction="sum")
    return LossSum(total, known.sum())


@torch.no_grad()
def score_questions(model: PictureAnswerer, asked: Sequence[Asked]) -> Numbers:
    """Scores ``(questions, answers)`` of all questions, picture by picture."""
    device = next(model.parameters()).device
    found = [np.zeros((0, model.output.out_features))]
    for part in each_step(_parts(asked)):
        found.append(model(*inputs_of(part, device)).double().cpu().numpy())
    return np.concatenate(found)


def _parts(asked: Sequence[Asked]) -> list[list[Asked]]:
    """Pieces that fit into memory, however many questions there are about one picture."""
    parts: list[list[Asked]] = []
    room = 0
    for one in asked:
        for start in range(0, len(one.questions), QUESTIONS):
            piece = Asked(one.pixels, one.questions[start : start + QUESTIONS])
            if not parts or len(piece.questions) > room or len(parts[-1]) == PICTURES:
                parts.append([])
                room = QUESTIONS
            parts[-1].append(piece)
            room -= len(piece.questions)
    return parts
