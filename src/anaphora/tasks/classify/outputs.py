"""From inputs to scores, probabilities and answers; what comes out for one input does not depend on the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from anaphora.data.labelled_batches import Input, in_order, tensors_of
from anaphora.data.labelled_targets import Targets
from anaphora.models.classical.ngram.classifier import NGramClassifier
from anaphora.models.classifier import SequenceClassifier

BATCH = 16_384  # symbols or vectors that are read together; results do not depend on it
PIXELS = 1 << 17  # the same for pictures
Numbers = np.ndarray[Any, np.dtype[np.float64]]


@torch.no_grad()
def score_inputs(model: SequenceClassifier | NGramClassifier, inputs: Sequence[Input]) -> Numbers:
    """Scores ``(n, outputs)`` of all inputs, in their order."""
    device = next(model.parameters()).device
    found = np.zeros((len(inputs), model.outputs))
    together = BATCH if not inputs or inputs[0].ndim < 3 else PIXELS // inputs[0].shape[1]
    for rows in in_order(inputs, together):
        source, lengths = tensors_of([inputs[i] for i in rows], device)
        found[rows] = model(source, lengths).double().cpu().numpy()
    return found


def probabilities(targets: Targets, scores: Numbers) -> Numbers:
    """softmax over the classes, or σ of each where there may be several: ``(n, K)``."""
    if targets.kind == "classes":
        return np.exp(-np.logaddexp(0, -scores))
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    found: Numbers = shifted / shifted.sum(1, keepdims=True)
    return found


def answers(targets: Targets, scores: Numbers, threshold: float) -> Numbers:
    """The most probable class ``(n,)``, a table of 0 and 1 ``(n, K)``, or the numbers ``(n,)``."""
    if targets.kind == "number":
        return targets.numbers(scores)
    if targets.kind == "classes":
        return (probabilities(targets, scores) >= threshold).astype(np.float64)
    best: Numbers = scores.argmax(1)
    return best
