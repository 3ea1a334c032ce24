"""What the training loop needs for embedding: the contrastive loss, the dev measures and the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.alike import AlikeBatch, Lookups, cropped
from anaphora.data.batches.padded import send, tensors_of
from anaphora.inference.torch_engine import score_inputs
from anaphora.kinds.measures.retrieval import Retrieved, lookup_measures
from anaphora.kinds.vector import unit
from anaphora.nn.contrastive import contrastive_losses, similarities
from anaphora.tasks.embed.info import EmbedderSettings
from anaphora.training.objective import LossSum
from anaphora.training.own import chosen_metric, own_loss, own_measures

SHOWN = 4
TOGETHER = 64
"""Dev rows that are compared with each other in the dev loss."""


class ContrastiveObjective:
    """`contrastive_losses` among the rows of a batch; those with the same input, positive or label count as alike. Rows without a
    positive are read twice, cut and dropped out differently (Gao 2021). Of several processes each compares its own rows."""

    counts, chance = "inputs", None

    def __init__(self, settings: EmbedderSettings, dev: Lookups):
        self.settings, self._dev = settings, dev
        self.metric, greater = chosen_metric(settings)
        self.greater_is_better = self.metric != "loss" if greater is None else greater
        self._own_loss = own_loss(settings)
        self._found: list[int] = []

    def loss(self, model: Any, batch: AlikeBatch) -> LossSum:
        device = next(model.parameters()).device
        crop = self.settings.crop if batch.positives is None and model.training else 1.0
        second = batch.anchors if batch.positives is None else batch.positives
        source, lengths = tensors_of([*cropped(batch.anchors, crop), *cropped(second, crop)], device)
        anchors, positives = model(source, lengths).chunk(2)
        return self._loss_of(anchors, positives, send(batch.alike(), device))

    def _loss_of(self, anchors: Tensor, positives: Tensor, alike: Tensor) -> LossSum:
        scores = similarities(anchors, positives) / self.settings.similarity_temperature  # (rows, rows)
        if self._own_loss:  # which is given the scores of each row, and which of them is right
            losses = self._own_loss(scores, torch.arange(len(scores), device=scores.device))
        else:
            losses = contrastive_losses(scores, alike)
        return LossSum(losses.sum(), len(scores))

    @torch.no_grad()
    def evaluate(self, model: Any) -> dict[str, float]:
        dev = self._dev
        queries = score_inputs(model, dev.queries)
        targets = queries if dev.itself else score_inputs(model, dev.targets)
        total = 0.0
        for rows in np.array_split(np.arange(len(queries)), -(-len(queries) // TOGETHER)):
            pair = (torch.from_numpy(queries[rows]), torch.from_numpy(targets[dev.own[rows]]))
            total += float(self._loss_of(*pair, torch.from_numpy(dev.right(rows, dev.own[rows]))).total)
        found = lookup_measures(dev, unit(queries), unit(targets))
        self._found = found.nearest
        return {"loss": total / len(queries), **found.report, **own_retrieval(self.settings, dev, found)}

    def samples(self, model: Any) -> list[dict[str, str]]:
        """The first dev inputs with what was found nearest in the last evaluation."""
        asked, answers = self._dev.spelled
        return [
            {"source": asked[row], "reference": answers[self._dev.own[row]], "output": answers[found]}
            for row, found in enumerate(self._found[:SHOWN])
        ]


def own_retrieval(settings: Any, asked: Lookups, found: Retrieved) -> dict[str, float]:
    """Return the user's measures, of numbers of what is right and what is nearest."""
    last = asked.keys[:, -1]
    return own_measures(settings, last.tolist(), last[found.nearest].tolist(), found.report)
