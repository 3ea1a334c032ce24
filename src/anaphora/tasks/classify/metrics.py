"""How good classes and numbers are. Shares are in percent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anaphora.data.labelled_targets import UNKNOWN

Numbers = np.ndarray[Any, Any]
MOST_CLASSES = 50
"""Up to so many classes the confusion of each with each is reported."""


def confusion(truth: Numbers, found: Numbers, classes: int) -> Numbers:
    """C ``(classes, classes)``: C[i, j] examples of class i were taken for class j. Unknown classes are left out."""
    known = truth != UNKNOWN
    cells = truth[known] * classes + found[known]
    counts: Numbers = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    return counts


def f1_of(hits: Numbers, found: Numbers, there: Numbers) -> Numbers:
    """F1 = 2·hits/(found + there) of each class; 0 where a class neither occurs nor is found."""
    f1: Numbers = 2 * hits / np.maximum(found + there, 1)
    return f1


def class_scores(truth: Numbers, found: Numbers, names: Sequence[str]) -> dict[str, Any]:
    """Accuracy; F1 of each class and their mean over the classes that occur or are found; the confusion matrix."""
    matrix = confusion(truth, found, len(names))
    scores = _by_class(np.diag(matrix), matrix.sum(0), matrix.sum(1), names)
    scores = {"accuracy": _percent((truth == found).mean() if len(truth) else 0.0), **scores}
    unseen = int((truth == UNKNOWN).sum())
    if unseen:
        scores["unseen_labels"] = unseen
    if len(names) <= MOST_CLASSES:
        scores["confusion"] = {
            name: dict(zip(names, row, strict=True)) for name, row in zip(names, matrix.tolist(), strict=True)
        }
    return scores


def several_scores(truth: Numbers, found: Numbers, names: Sequence[str]) -> dict[str, Any]:
    """For 0/1 tables ``(n, K)``: examples with all labels right, F1 over all labels (micro) and of each class."""
    hits = (truth * found).sum(0)
    scores = _by_class(hits, found.sum(0), truth.sum(0), names)
    micro = float(f1_of(hits.sum(), found.sum(), truth.sum()))
    exact = (truth == found).all(1).mean() if len(truth) else 0.0
    return {"accuracy": _percent(exact), "micro_f1": _percent(micro), **scores}


def number_scores(truth: Numbers, found: Numbers, tolerance: float) -> dict[str, Any]:
    """Mean squared and absolute error, the share of the variance explained, and the share of answers nearer to
    the true number than ``tolerance``."""
    error = found - truth
    variance = float(((truth - truth.mean()) ** 2).mean())
    squared = float((error**2).mean())
    return {
        "accuracy": _percent((np.abs(error) < tolerance).mean()),
        "mse": squared,
        "mae": float(np.abs(error).mean()),
        "r2": 1 - squared / variance if variance else 0.0,
    }


def _by_class(hits: Numbers, found: Numbers, there: Numbers, names: Sequence[str]) -> dict[str, Any]:
    f1 = f1_of(hits, found, there)
    counted = (found + there) > 0
    table = {
        name: {
            "precision": _percent(hits[i] / max(found[i], 1)),
            "recall": _percent(hits[i] / max(there[i], 1)),
            "f1": _percent(f1[i]),
            "examples": int(there[i]),
        }
        for i, name in enumerate(names)
    }
    return {"macro_f1": _percent(f1[counted].mean() if counted.any() else 0.0), "by_class": table}


def _percent(share: Any) -> float:
    return 100.0 * float(share)
