"""Spans are rare, and F1 wants as many found as right: the score of O is shifted, after training, to where dev F1 is best.

A tagger is trained to be probable word by word. Most words are outside of spans, so it finds too few of them: precision is far above
recall, and their harmonic mean lower than it could be. Adding −b to the score of O moves along that curve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from anaphora.kinds.measures.judged import smoothed
from anaphora.models import tagger as models
from anaphora.nn.lora import has_adapters
from anaphora.training import distributed
from anaphora.training.loop import TrainingResult
from anaphora.training.run import RunFolder
from anaphora.training.weights import save_weights

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger

SHIFTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5)
"""What is subtracted from the score of O."""
LEAST = 50
"""Spans that the dev data must have: of fewer the best shift is mostly chance."""
OUTSIDE = "O"
_BIAS = "output.bias"

Measured = Callable[[], dict[str, float]]


@torch.no_grad()
def best_shift(model: models.Tagger, outside: int, measured: Measured) -> tuple[float, dict[str, float]]:
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
    smooth = smoothed([measures["f1"] for _, measures in found])
    return found[smooth.index(max(smooth))]


def balanced(
    run: RunFolder, model: models.Tagger, outside: int, measured: Measured, result: TrainingResult
) -> TrainingResult:
    """Write the best shift into the weights of ``run``, which ``model`` has; the result with the measures after it."""
    tensors, facts = run.load_model()
    if has_adapters(tensors) or _BIAS not in tensors or "balanced" in facts:
        return result
    shift, measures = best_shift(model, outside, measured)
    tensors[_BIAS][outside] -= shift
    save_weights(run.model, tensors, facts={**facts, "balanced": shift})
    return replace(result, best=measures["f1"], metrics={**result.metrics, **measures})


def balance(
    m: Tagger, run: RunFolder, inputs: list[Any], gold: list[list[str]], result: TrainingResult
) -> TrainingResult:
    """`balanced` for a tagger that has just been trained, where its settings ask for it and the dev data ``inputs``, ``gold`` have
    spans enough; else the ``result`` as it is."""
    wanted = m.settings_.balance_spans and result.metric == "f1" and result.best is not None
    group = distributed.join(m.settings_.device)
    if not wanted or group.world > 1 or result.stopped == "interrupted":
        return result
    if OUTSIDE not in m.learnt_.tags or sum(map(begins, gold)) < LEAST:
        return result
    m._take_weights(run, run.load_model()[0], group.device)
    assert isinstance(m.model_, models.Tagger)

    def measured() -> dict[str, float]:
        scores = m._scores(inputs, gold)
        return {key: value for key, value in scores.items() if isinstance(value, float)}

    return balanced(run, m.model_, m.learnt_.tags.index(OUTSIDE), measured, result)


def begins(tags: Sequence[str]) -> int:
    """About how many spans a sentence has: tags that are not O after one that is."""
    return sum(
        tag != OUTSIDE and before == OUTSIDE for before, tag in zip((OUTSIDE, *tags), tags, strict=False)
    )
