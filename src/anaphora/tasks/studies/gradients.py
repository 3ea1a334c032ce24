"""How much a loss at the end of a sequence feels of every step before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.batches.padded import LabelledBatch
from anaphora.models.classifier import SequenceClassifier
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.memory import Memory
from anaphora.nn.attention import masks
from anaphora.tasks.classify.estimator import Classifier
from anaphora.tasks.classify.objective import ClassificationObjective


def gradients_over_time(
    classifier: Classifier, model: SequenceClassifier, inputs: Sequence[Any], labels: Sequence[str]
) -> list[float]:
    """‖∂L/∂s_t‖ for t = 1 … T, the mean over examples of one length.

    s_t is all that a recurrent network hands from step t to the next (every layer; an LSTM's h and c together); of
    other models it is the vector that enters at place t.
    """
    encoded = classifier.inputs_.encode(inputs)
    truth = classifier.targets_.encode(labels)
    objective = ClassificationObjective(
        classifier.settings_, classifier.targets_, truth, (encoded, list(labels))
    )
    source, lengths = LabelledBatch(encoded, truth, list(range(len(labels)))).tensors()
    model = model.cpu().eval()
    with torch.enable_grad():
        states, memory = _read(model, source, lengths)
        loss = objective.loss_of(model.judge(memory), torch.from_numpy(truth), 0.0).total
        flat = [part for state in states for part in state]
        found = torch.autograd.grad(loss, flat, allow_unused=True)
    each = len(states[0])
    return [_length(found[i : i + each]) for i in range(0, len(found), each)]


def _read(
    model: SequenceClassifier, source: Tensor, lengths: Tensor
) -> tuple[list[tuple[Tensor, ...]], Memory]:
    """What the model makes of the sequences, and the states it passes through, one tuple per step."""
    encoder: Any = model.encoder
    vectors = encoder.embedding(source).detach()
    mask = masks.padding(lengths, source.shape[1])
    if not isinstance(encoder, RecurrentEncoder):
        steps = [x.requires_grad_() for x in encoder.positions(vectors).unbind(1)]
        return [(x,) for x in steps], Memory(encoder.stack(torch.stack(steps, 1), mask), mask)
    state = encoder.recurrent.initial_state(len(source), vectors)
    states: list[tuple[Tensor, ...]] = []
    for x in vectors.requires_grad_().unbind(1):
        _, state = encoder.recurrent.step(x, state)
        states.append(state)
    return states, Memory(torch.stack([s[0][-1] for s in states], 1), mask, state)


def _length(gradients: Sequence[Tensor | None]) -> float:
    """Mean over the examples of the length of all parts together; parts are ``(…, batch, width)``."""
    parts = [g.reshape(-1, *g.shape[-2:]).transpose(0, 1).flatten(1) for g in gradients if g is not None]
    return float(np.mean(torch.cat(parts, 1).double().norm(dim=1).numpy())) if parts else 0.0
