"""From a path, one symbol per frame, to the labels it spells; and the labels of the best path."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.search._hypothesis import Hypothesis, NBest
from anaphora.search.ctc._inputs import Lengths, checked_log_probs

Symbol = TypeVar("Symbol")


def ctc_collapse(path: Iterable[Symbol], blank: Symbol) -> list[Symbol]:
    """Merge repeats, then remove blanks: in this order, so that a blank keeps two equal labels apart.

    >>> ctc_collapse("H – EH – – – – L L – – OU –".split(), "–")
    ['H', 'EH', 'L', 'OU']
    """
    if isinstance(path, Tensor | np.ndarray):
        path = path.tolist()  # its elements would not compare equal as keys
    return [symbol for symbol, _ in groupby(path) if symbol != blank]


def ctc_greedy(
    log_probs: Tensor | NDArray[np.floating], lengths: Lengths = None, *, blank: int = 0
) -> list[NBest]:
    """The labels of the best path: the best symbol at every frame, collapsed.

    log_probs: ``(batch, time, symbols)``; lengths: ``(batch,)`` real frames of each, all by default.

    Each list holds one hypothesis, whose `log_prob` and `score` are those of this one path. Labels whose mass is
    spread over many paths are missed; `ctc_beam` adds paths up.
    """
    scores, frames = checked_log_probs("ctc_greedy", log_probs, lengths, blank)
    best, path = scores.max(-1) if scores.shape[1] else (scores.sum(-1), scores.sum(-1).long())
    real = torch.arange(scores.shape[1]) < frames[:, None]
    path, best = path.cpu(), best.cpu().masked_fill(~real, 0.0)
    labels = real & (path != blank)
    labels[:, 1:] &= path[:, 1:] != path[:, :-1]
    total = best.double().sum(1).tolist()
    return [
        NBest([Hypothesis(row[at].tolist(), score, score, [], finished=True)])
        for row, at, score in zip(path, labels, total, strict=True)
    ]
