"""Forced alignment: which frames spell which symbol of a known target."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anaphora.ops.targets import Lengths, Targets, checked_log_probs, checked_targets, refuse


@dataclass(frozen=True)
class Span:
    """The frames of one ``symbol`` of the target: from ``start`` to before ``end``, with ``confidence``.

    >>> log_probs = torch.tensor([[[0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]]).log()   # blank is 0
    >>> span = an.search.ctc_align(log_probs, [[1, 2]])[0].spans[1]
    >>> span.symbol, span.start, span.end, round(span.confidence, 2)
    (2, 2, 3, 0.8)
    """

    symbol: int
    start: int
    """Its first frame."""
    end: int
    """The frame after its last."""
    confidence: float
    """The geometric mean of the symbol's probability over these frames."""


@dataclass(frozen=True)
class Alignment:
    """The best ``path`` that spells a target, its ``spans`` and its ``log_prob``; see `ctc_align`.

    >>> log_probs = torch.tensor([[[0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]]).log()   # blank is 0
    >>> found = an.search.ctc_align(log_probs, [[1, 2]])[0]
    >>> len(found.spans), round(found.log_prob, 2)
    (2, -0.8)
    """

    path: list[int]
    """One symbol or blank per frame."""
    spans: list[Span]
    """One per symbol of the target, in its order."""
    log_prob: float
    """log p of this path."""


def ctc_align(
    log_probs: Tensor | NDArray[np.floating],
    targets: Targets,
    lengths: Lengths = None,
    target_lengths: Lengths = None,
    *,
    blank: int = 0,
) -> list[Alignment]:
    """π* = argmax_{π: collapse(π) = y} Π_t p_t(π_t) for each input, as the frames of every symbol of y.

    log_probs: ``(batch, time, symbols)``; lengths: ``(batch,)`` real frames of each, all by default.
    targets: ``(batch, longest)`` with ``target_lengths``, or a list of lists of symbols, without blanks.

    Raises `DataError` with the rows where no path spells the target.

    >>> log_probs = torch.tensor([[[0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]]).log()  # blank is 0
    >>> an.search.ctc_align(log_probs, [[1, 2]])[0].path
    [1, 0, 2]
    """
    scores, frames = checked_log_probs("ctc_align", log_probs, lengths, blank)
    labels, sizes = checked_targets(
        "ctc_align", targets, target_lengths, scores.shape[0], scores.shape[2], blank
    )
    from anaphora.ops.lattices import best_path

    rows = scores.cpu()
    found, lost = [], []
    for row, (real, size) in enumerate(zip(frames.tolist(), sizes.tolist(), strict=True)):
        log_p = rows[row, :real].double().contiguous().numpy()
        target = labels[row, :size].numpy()
        states, total = best_path(log_p, target, blank)
        if total == -math.inf:
            lost.append(row)
        else:
            found.append(_alignment(log_p, target, states, total, blank))
    if lost:
        raise refuse("ctc_align", lost, frames, labels, sizes)
    return found


def _alignment(
    log_p: NDArray[np.float64],
    target: NDArray[np.int64],
    states: NDArray[np.int64],
    total: float,
    blank: int,
) -> Alignment:
    """States along the frames, 2i + 1 for symbol i, as symbols and spans."""
    path = np.full(len(states), blank)
    path[states % 2 == 1] = target[states[states % 2 == 1] // 2]
    spans = []
    for i, symbol in enumerate(target.tolist()):
        start, end = np.searchsorted(states, (2 * i + 1, 2 * i + 2)).tolist()
        spans.append(Span(symbol, start, end, math.exp(log_p[start:end, symbol].mean())))
    return Alignment(path.tolist(), spans, total)
