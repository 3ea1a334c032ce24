"""What the training loop is told about answering: the loss, the dev measures and the samples; and how questions are
answered."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from anaphora.data.labelled_targets import UNKNOWN
from anaphora.models.answerer import PictureAnswerer
from anaphora.tasks.answer.batches import AnswerBatch, Asked, inputs_of
from anaphora.tasks.answer.info import AnswererSettings
from anaphora.training.objective import LossSum

SHOWN = 4
PICTURES, QUESTIONS = 64, 256
"""How many are answered together; results do not depend on it."""
KINDS = 20
"""Most kinds of questions that are told apart."""
Numbers = np.ndarray[Any, np.dtype[np.float64]]


class AnswerObjective:
    """−log softmax(z)_y of the right answer y, per question. ``dev`` are pictures with questions and their answers,
    ``texts`` the rows of these pictures as they were written."""

    def __init__(self, settings: AnswererSettings, names: Sequence[str], dev: list[Asked], texts: list[Any]):
        self.settings, self._names, self._dev = settings, list(names), dev
        self.metric = settings.metric
        self.greater_is_better = settings.metric != "loss"
        self.chance = math.log(len(names))
        self._rows = [row for rows in texts for row in rows]
        self._found: list[int] = []

    def loss(self, model: PictureAnswerer, batch: AnswerBatch) -> LossSum:
        device = next(model.parameters()).device
        scores = model(*inputs_of(batch.asked, device)).float()
        smoothing = self.settings.label_smoothing if model.training else 0.0
        return loss_of(scores, batch.answers().to(device), smoothing)

    @torch.no_grad()
    def evaluate(self, model: PictureAnswerer) -> dict[str, float]:
        scores = score_questions(model, self._dev)
        truth = np.array([answer for one in self._dev for answer in one.answers])
        part = loss_of(torch.from_numpy(scores).float(), torch.from_numpy(truth))
        self._found = scores.argmax(1).tolist()
        right = float((scores.argmax(1) == truth).mean())
        return {"loss": float(part.total) / max(float(part.count), 1e-9), "accuracy": 100 * right}

    def samples(self, model: PictureAnswerer) -> list[dict[str, str]]:
        """The first dev questions with the answers of the last evaluation."""
        return [
            {"source": row[0], "reference": row[1], "output": self._names[answer]}
            for row, answer in zip(self._rows[:SHOWN], self._found[:SHOWN], strict=True)
        ]


def loss_of(scores: Tensor, truth: Tensor, smoothing: float = 0.0) -> LossSum:
    """Cross entropy of scores ``(questions, answers)``; questions whose answer training does not know count nothing."""
    total = F.cross_entropy(scores, truth, ignore_index=UNKNOWN, label_smoothing=smoothing, reduction="sum")
    return LossSum(total, (truth != UNKNOWN).sum())


@torch.no_grad()
def score_questions(model: PictureAnswerer, asked: Sequence[Asked]) -> Numbers:
    """Scores ``(questions, answers)`` of all questions, picture by picture."""
    device = next(model.parameters()).device
    found = [np.zeros((0, model.output.out_features))]
    for part in _parts(asked):
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


def by_kind(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> dict[str, dict[str, float]]:
    """Accuracy in percent and number of questions for each kind: the third text of a row where it has one, else the
    question's first two words; the commonest kinds, the others together."""
    kinds = [row[2] if len(row) > 2 and row[2].strip() else " ".join(row[0].split()[:2]) for row in rows]
    common = [kind for kind, _ in Counter(kinds).most_common(KINDS)]
    named = [kind if kind in common else "other" for kind in kinds]
    return {
        kind: {
            "accuracy": 100.0
            * float(np.mean([so for name, so in zip(named, right, strict=True) if name == kind])),
            "questions": named.count(kind),
        }
        for kind in dict.fromkeys([*common, *named])
    }
