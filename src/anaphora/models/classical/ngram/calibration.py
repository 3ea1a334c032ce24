"""How sure scores of classes are: the factor that turns them into probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_LEAST, _MOST = 0.1, 100.0


def sharpness(scores: Array, truth: Array) -> float:
    """The factor a for which softmax(a z) predicts the classes ``truth`` ``(n,)`` of examples with scores z ``(n, K)`` best.

    It minimises −Σ t · log softmax(a z) over examples that were not learned from. The target t of the true class is n + 1 parts in n + 2, and the rest
    is spread over all (as in Platt 1999), so that a few examples that are all right do not make the model sure of everything. From 0.1 to 100.

        >>> z = np.array([[2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
        >>> a = sharpness(z, np.array([0, 1, 0]))
        >>> p = np.exp(2 * a) / (1 + np.exp(2 * a))     # two in three are right; 0.8 · 2/3 + 0.1
        >>> float(round(p, 3))
        0.633
    """
    count, classes = scores.shape
    spread = 1 / (count + 2)
    wanted = np.full(scores.shape, spread / classes)
    wanted[np.arange(count), truth] += 1 - spread
    low, high = np.log(_LEAST), np.log(_MOST)
    for _ in range(40):  # the slope rises with a
        middle = (low + high) / 2
        z = np.exp(middle) * (scores - scores.max(1, keepdims=True))
        p = np.exp(z)
        slope = ((p / p.sum(1, keepdims=True) - wanted) * scores).sum()
        low, high = (low, middle) if slope > 0 else (middle, high)
    return float(np.exp((low + high) / 2))
