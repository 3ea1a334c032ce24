"""Spans are rare, and F1 wants as many found as right: the score of O is shifted, after training, to where dev F1 is best.

A tagger is trained to be probable word by word. Most words are outside of spans, so it finds too few of them: precision is far above
recall, and their harmonic mean lower than it could be. Adding −b to the score of O moves along that curve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import torch

from anaphora.models.tagger import Tagger
from anaphora.nn.lora import has_adapters
from anaphora.training.loop import TrainingResult
from anaphora.training.run import RunFolder
from anaphora.training.weights import save_weights

SHIFTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5)
"""What is subtracted from the score of O."""
LEAST = 50
"""Spans that the dev data must have: of fewer the best shift is mostly chance."""
OUTSIDE = "O"
_BIAS = "output.bias"

Measured = Callable[[], dict[str, float]]


@torch.no_grad()
def best_shift(model: Tagger, outside: int, measured: Measured) -> tuple[float, dict[str, float]]:
    """The shift of the score of tag ``outside`` with the best ``f1`` among ``measured()``, and what was measured with it.

    Its F1 is averaged with those of its neighbours, so that a single lucky value does not decide; of equal ones the smallest counts.
    The model is left as it was.
    """
    bias = model.output.bias
    own = bias[outside].clone()
    found: list[tuple[float, dict[str, float]]] = []
    try:
        for shift in SHIFTS:
            bias[outside] = own - shift
            found.append((shift, measured()))
    finally:
        bias[outside] = own
    values = [measures["f1"] for _, measures in found]
    smooth = [fmean(values[max(0, i - 1) : i + 2]) for i in range(len(values))]
    return found[smooth.index(max(smooth))]


def balanced(
    run: RunFolder, model: Tagger, outside: int, measured: Measured, result: TrainingResult
) -> TrainingResult:
    """Write the best shift into the weights of ``run``, which ``model`` has; the result with the measures after it."""
    tensors, facts = run.load_model()
    if has_adapters(tensors) or _BIAS not in tensors or "balanced" in facts:
        return result
    shift, measures = best_shift(model, outside, measured)
    tensors[_BIAS][outside] -= shift
    save_weights(run.model, tensors, facts={**facts, "balanced": shift})
    return replace(result, best=measures["f1"], metrics={**result.metrics, **measures})
