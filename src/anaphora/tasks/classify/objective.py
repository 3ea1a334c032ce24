"""What the training loop needs for classification: the loss, the dev metrics and the samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from anaphora.data.batches.padded import LabelledBatch, send
from anaphora.data.batches.pooled import Input
from anaphora.data.labelled_targets import UNKNOWN, Targets
from anaphora.data.symbols import EOS, PAD, UNK
from anaphora.inference.torch_engine import score_inputs
from anaphora.kinds.labels import spelled
from anaphora.kinds.measures.classes import (
    class_measures,
)
from anaphora.kinds.measures.judged import Judged, Measured
from anaphora.models.classical.ngram.classifier import NGramClassifier
from anaphora.models.classical.rocket import RocketClassifier
from anaphora.models.classifier import SequenceClassifier
from anaphora.models.looking import LookingClassifier
from anaphora.models.own import OwnScores
from anaphora.nn.attention import score_function
from anaphora.nn.glimpse import Looks
from anaphora.settings.classify import ClassifierSettings
from anaphora.tasks.regularising import is_regular, regular_loss
from anaphora.tasks.thresholding import best_threshold, is_chosen, usable
from anaphora.training.objective import LossSum
from anaphora.training.own import chosen_metric, own_loss, own_measures

SHOWN = 4


class ClassificationObjective:
    """The loss of an example with scores z:

    - class: −log softmax(z)_y, times the weight of class y if classes are balanced;
    - classes: Σ_k of −log σ(z_k) for those it has and −log(1 − σ(z_k)) for the others;
    - number: (z − (y − mean)/scale)².

    Places that a model chooses to look at are learned beside it (see `choices`), which leaves the value of the loss alone.

    ``dev`` are inputs and labels; ``texts`` what stands for the first of them in the samples.
    """

    counts = "examples"

    def __init__(
        self,
        settings: ClassifierSettings,
        targets: Targets,
        train: np.ndarray[Any, Any],
        dev: tuple[list[Input], list[str]],
        texts: Sequence[str] = (),
    ):
        self.settings, self.targets = settings, targets
        self.metric, greater = chosen_metric(settings, best_measure(settings))
        self.greater_is_better = self.metric != "loss" if greater is None else greater
        self._own_loss = own_loss(settings)
        self.chance = math.log(targets.size) if targets.kind == "class" else None
        self._weights = class_weights(targets, train) if settings.class_weight == "balanced" else None
        self._inputs, self._labels = dev
        self._truth = targets.encode(self._labels)
        self.labels = float((self._truth > 0).sum())
        self._texts = list(texts)[:SHOWN]
        self._found: np.ndarray[Any, Any] = np.zeros(0)
        self.threshold: float | None = None
        """That of several labels, where dev data choose it: of the last evaluation."""

    def loss(self, model: SequenceClassifier, batch: LabelledBatch) -> LossSum:
        device = next(model.parameters()).device
        source, lengths = batch.tensors(device)
        if model.training and self.settings.word_dropout and source.dim() == 2:
            source = drop_words(source, self.settings.word_dropout)
        truth = send(batch.targets, device)
        if model.training and is_regular(self.settings):
            smoothing = self.settings.label_smoothing
            return regular_loss(
                self.settings, model, source, lengths, truth, lambda z, y: self.loss_of(z, y, smoothing)
            )
        looks = None
        if isinstance(model, LookingClassifier):
            scores, looks = model.look(source)
        else:
            scores = model(source, lengths)
        smoothing = self.settings.label_smoothing if model.training else 0.0
        found = self.loss_of(scores.float(), truth, smoothing)
        if looks is not None and looks.log_prob is not None:
            found.total = found.total + choice_loss(
                looks, mistakes(self.targets.kind, scores.detach(), truth)
            )
        return found

    def loss_of(self, scores: Tensor, truth: Tensor, smoothing: float = 0.0) -> LossSum:
        """The loss of scores ``(batch, outputs)`` where ``truth`` (see `Targets.encode`) is right."""
        kind = self.targets.kind
        weight = None if self._weights is None else self._weights.to(scores)
        if self._own_loss:
            return self._by_own_loss(scores, truth, weight)
        if kind == "number":
            return LossSum(F.mse_loss(scores[:, 0], truth, reduction="sum"), len(truth))
        if kind == "classes":
            total = F.binary_cross_entropy_with_logits(scores, truth, pos_weight=weight, reduction="sum")
            return LossSum(total, len(truth))
        total = F.cross_entropy(
            scores,
            truth,
            weight=weight,
            ignore_index=UNKNOWN,
            label_smoothing=smoothing,
            reduction="sum",
        )
        known = truth[truth != UNKNOWN]
        return LossSum(total, len(known) if weight is None else weight[known].sum())

    def _by_own_loss(self, scores: Tensor, truth: Tensor, weight: Tensor | None) -> LossSum:
        """The user's loss of the examples whose label is known, each times the weight of its class."""
        assert self._own_loss is not None
        if self.targets.kind != "class":
            outputs = scores[:, 0] if self.targets.kind == "number" else scores
            return LossSum(self._own_loss(outputs, truth).sum(), len(truth))
        scores, truth = scores[truth != UNKNOWN], truth[truth != UNKNOWN]
        each = self._own_loss(scores, truth)
        if weight is None:
            return LossSum(each.sum(), len(truth))
        return LossSum((each * weight[truth]).sum(), weight[truth].sum())

    @torch.no_grad()
    def evaluate(
        self, model: SequenceClassifier | OwnScores | NGramClassifier | RocketClassifier
    ) -> dict[str, float]:
        scores = score_inputs(model, self._inputs)
        part = self.loss_of(torch.from_numpy(scores).float(), torch.from_numpy(self._truth), 0.0)
        if is_chosen(self.settings):
            self.threshold = best_threshold(self._truth, self.targets.probabilities(scores))
        self._found = self.targets.answers(scores, usable(self.settings, self.threshold))
        measured = class_measures(self.targets, self._labels, self._found, self.settings.tolerance)
        own = own_scores(self.settings, self.targets, self._labels, self._found, measured)
        loss = float(part.total) / max(float(part.count), 1e-9)
        return {"loss": loss, **measured.numbers(), **own}

    def samples(self, model: SequenceClassifier) -> list[dict[str, str]]:
        """The first dev texts with the answers of the last evaluation."""
        shown = len(self._texts)
        given = spelled(self.targets, self.targets.labelled(self._found[:shown]))
        return [
            {"source": text, "reference": label, "output": answer}
            for text, label, answer in zip(self._texts, self._labels[:shown], given, strict=True)
        ]


def best_measure(settings: ClassifierSettings) -> str:
    """The name of the dev measure that decides which weights are best."""
    if settings.metric != "auto":
        return settings.metric
    if settings.target == "number":
        return "loss"
    return "micro_f1" if is_chosen(settings) else "accuracy"


def classes_judged(
    targets: Targets,
    shown: Sequence[str],
    labels: Sequence[str],
    scores: np.ndarray[Any, Any],
    found: np.ndarray[Any, Any],
    measured: Measured,
    seconds: float,
) -> Judged:
    """The answers ``found`` for ``scores``, by each example; an answer is as wrong as the right label
    is improbable, a number as it is far off."""
    truth = targets.encode(labels)
    if targets.kind == "number":
        losses = np.abs(found - targets.numbers(truth[:, None]))
    elif targets.kind == "classes":
        losses = np.abs(targets.probabilities(scores) - truth).mean(1)
    else:
        right = targets.probabilities(scores)[np.arange(len(truth)), np.maximum(truth, 0)]
        losses = 1.0 - np.where(truth == UNKNOWN, 0.0, right)
    answers = spelled(targets, targets.labelled(found))
    return Judged(shown, list(labels), answers, losses, measured.measures, seconds)


def own_scores(
    settings: ClassifierSettings,
    targets: Targets,
    labels: Sequence[str],
    found: np.ndarray[Any, Any],
    measured: Measured,
) -> dict[str, float]:
    """The user's measures of labels and answers as they are written, of numbers as they are."""
    truth: Any = list(labels)
    answers: Any = spelled(targets, targets.labelled(found))
    if targets.kind == "number":
        truth, answers = targets.numbers(targets.encode(labels)[:, None]), found
    return own_measures(settings, truth, answers, measured.report)


def class_weights(targets: Targets, train: np.ndarray[Any, Any]) -> Tensor:
    """class: n/(K·n_k), so that the classes weigh alike and the mean weight is 1; classes: (n − n_k)/n_k, what a
    label counts where it is present."""
    if targets.kind == "class":
        counts = np.bincount(train[train != UNKNOWN], minlength=targets.size)
        return torch.from_numpy(counts.sum() / (targets.size * np.maximum(counts, 1)))
    present = np.maximum(train.sum(0), 1)
    return torch.from_numpy((len(train) - present) / present)


def drop_words(source: Tensor, share: float) -> Tensor:
    """Symbols ``(batch, time)``, a random ``share`` of them UNK; the end symbol and padding stay."""
    fixed = (source == PAD) | (source == EOS)
    dropped = torch.rand(source.shape, device=source.device) < share
    return torch.where(dropped & ~fixed, UNK, source)


def mistakes(kind: str, scores: Tensor, truth: Tensor) -> Tensor:
    """How wrong each answer is, ``(batch,)`` from 0 to 1: one class, wrong or not; of several classes the share that is
    wrong; of a number the squared error (in units of its spread), at most 1."""
    if kind == "class":
        return (scores.argmax(-1) != truth).float()
    if kind == "classes":
        return ((scores > 0) != (truth > 0.5)).float().mean(-1)
    return (scores[:, 0] - truth).float().square().clamp(max=1.0)


def choice_loss(looks: Looks, cost: Tensor) -> Tensor:
    """A loss of value 0 whose gradient teaches what was drawn and what it was expected to cost.

        Σ_t (c − b_t) log p(l_t) + (b_t − c)²        over examples with cost c and looks l_t with baseline b_t

    by the score function; the baseline follows the cost by least squares.
    """
    assert looks.log_prob is not None
    assert looks.baseline is not None
    drawn = looks.log_prob[:, 1:].float()  # the first look is at the middle
    expected = looks.baseline[:, 1:].float()
    cost = cost[:, None].expand_as(drawn)
    total = (score_function(cost, drawn, expected) + (expected - cost).square()).sum()
    return total - total.detach()
