"""Of several labels those are given whose probability reaches a threshold: the one at which F1 over the dev labels is best.

A label that few examples have is seldom more probable than not, so that a threshold of 0.5 gives it to hardly any. Where probabilities are
right, F1 is best at a threshold of half of that F1: far below 0.5 where labels are hard to tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.batches.padded import labels_of
from anaphora.data.labelled_targets import USUAL_THRESHOLD
from anaphora.data.sources.report import say
from anaphora.kinds.measures.classes import f1_of
from anaphora.kinds.measures.judged import smoothed
from anaphora.training import distributed
from anaphora.training.loop import TrainingResult
from anaphora.training.run import RunFolder
from anaphora.training.weights import save_weights

if TYPE_CHECKING:
    from anaphora.tasks.classify.estimator import Classifier

GRID = 1 / (1 + np.exp(-np.arange(-4, 2.01, 0.25)))
"""Thresholds that are compared, from 0.018 to 0.88; 0.5 is one of them."""
LEAST = 50
"""Labels that the dev data must have: of fewer the best threshold is mostly chance."""
NAME = "threshold"
"""Of the tensor that keeps the threshold beside the weights."""

Numbers = np.ndarray[Any, Any]


def is_chosen(settings: Any) -> bool:
    """Whether the dev data choose the threshold of classifiers with these settings."""
    return bool(settings.target == "classes" and not settings.threshold)


def best_threshold(truth: Numbers, shares: Numbers) -> float:
    """The threshold of `GRID` at which probabilities ``shares`` (n, K) of labels ``truth`` (n, K) of 0 and 1 have the best micro F1.

    The F1 of each is averaged with that of its neighbours, so that a single lucky value does not decide. With fewer than `LEAST` labels it is 0.5.

    >>> truth, shares = np.ones((60, 1)), np.full((60, 1), 0.3)
    >>> 0.2 < best_threshold(truth, shares) < 0.3
    True
    """
    there = truth.sum()
    if there < LEAST:
        return USUAL_THRESHOLD
    given = [shares >= least for least in GRID]
    steady = smoothed([float(f1_of((truth * found).sum(), found.sum(), there)) for found in given])
    # of equally good ones that nearest to 0.5
    best = max(range(len(GRID)), key=lambda i: (steady[i], -abs(GRID[i] - USUAL_THRESHOLD)))
    return float(GRID[best])


def kept(threshold: float | None) -> dict[str, Tensor]:
    """The ``threshold`` as what is written beside the weights."""
    return {} if threshold is None else {NAME: torch.tensor(threshold, dtype=torch.float64)}


def taken(tensors: dict[str, Tensor]) -> tuple[float | None, dict[str, Tensor]]:
    """The threshold that `kept` wrote, and the weights without it. Raises a ValueError where it is no probability."""
    if NAME not in tensors:
        return None, tensors
    found = tensors[NAME]
    if found.numel() != 1 or not 0 < float(found) < 1:
        raise ValueError(f"{NAME}: a number between 0 and 1 is needed")
    return float(found), {name: value for name, value in tensors.items() if name != NAME}


def tell(threshold: float, labels: float) -> None:
    """Report which threshold was chosen, and why."""
    if labels < LEAST:
        why = f"only {labels:,.0f} dev labels"
    else:
        why = f"the best F1 over {labels:,.0f} dev labels"
    say(f"assumed, for {why}: {NAME}={threshold:.2g}")


def settle_threshold(m: Classifier, run: RunFolder, dev: Any, result: TrainingResult) -> TrainingResult:
    """Choose the threshold for the best weights of ``run`` by the dev data, and write it beside them."""
    if not is_chosen(m.settings_) or result.stopped == "interrupted":
        return result
    group = distributed.join(m.settings_.device)
    tensors, facts = run.load_model()
    m._take_weights(run, tensors, group.device)
    held = [x for x, _ in dev.read(range(len(dev)))]
    truth = m.targets_.encode(labels_of(dev))
    found = best_threshold(truth, m.targets_.probabilities(m._scores(held)))

    def write() -> None:
        tell(found, truth.sum())
        save_weights(run.model, tensors | kept(found), facts=facts)

    group.on_main(write)
    return result


def usable(settings: Any, chosen: float | None) -> float:
    """The threshold that is used: that of the ``settings``, else the one that dev data have ``chosen``, else 0.5."""
    return float(settings.threshold or chosen or USUAL_THRESHOLD)
