"""How sure scores of classes are: the factor that turns them into probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_LEAST, _MOST = 0.1, 100.0


def sharpness(scores: Array, truth: Array, *, several: bool = False) -> float:
    """The factor a for which softmax(a z) predicts the classes of examples with scores z best, or σ(a z) where an example may have ``several``.

    It minimises −Σ t · log p over examples that were not learned from. t is ``truth`` of 0 and 1, but one part in n + 2 of it is spread over all
    outcomes (as in Platt 1999), so that a few examples that are all right do not make the model sure of everything. From 0.1 to 100.

        >>> z = np.array([[2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
        >>> a = sharpness(z, np.eye(2)[[0, 1, 0]])
        >>> p = np.exp(2 * a) / (1 + np.exp(2 * a))     # two in three are right; 0.8 · 2/3 + 0.1
        >>> float(round(p, 3))
        0.633

    Args:
        scores: ``(n, K)``.
        truth: ``(n, K)`` of 0 and 1.
        several: whether each class has a probability of its own.
    """
    count, classes = scores.shape
    doubt = 1 / (count + 2)
    wanted = (1 - doubt) * truth + doubt / (2 if several else classes)
    low, high = np.log(_LEAST), np.log(_MOST)
    for _ in range(40):  # the slope of the loss rises with a
        middle = (low + high) / 2
        slope = ((_probabilities(np.exp(middle) * scores, several) - wanted) * scores).sum()
        low, high = (low, middle) if slope > 0 else (middle, high)
    return float(np.exp((low + high) / 2))


def _probabilities(z: Array, several: bool) -> Array:
    if several:
        return np.asarray(0.5 + 0.5 * np.tanh(z / 2))
    p = np.exp(z - z.max(1, keepdims=True))
    return np.asarray(p / p.sum(1, keepdims=True))
