"""How good classes and numbers are. Shares are in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anaphora.data.labelled_targets import Targets
from anaphora.kinds.measures.judged import Measure, columns, digest, f1, mean, share_right

Numbers = np.ndarray[Any, Any]
MOST_CLASSES = 50
"""Up to so many classes the confusion of each with each is reported."""


def confusion(truth: Numbers, found: Numbers, classes: int) -> Numbers:
    """C ``(classes, classes)``: C[i, j] examples of class i were taken for class j."""
    cells = truth * classes + found
    counts: Numbers = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    return counts


def f1_of(hits: Numbers, found: Numbers, there: Numbers) -> Numbers:
    """F1 = 2·hits/(found + there) of each class; 0 where a class neither occurs nor is found."""
    f1: Numbers = 2 * hits / np.maximum(found + there, 1)
    return f1


def class_scores(truth: Numbers, found: Numbers, names: Sequence[str], known: int) -> dict[str, Any]:
    """Accuracy; F1 of each class and their mean over the classes that occur or are found; the confusion matrix.

    The first ``known`` classes are the model's own; the others occur in the data alone, and no answer is right there.
    """
    matrix = confusion(truth, found, len(names))
    scores = _by_class(np.diag(matrix), matrix.sum(0), matrix.sum(1), names)
    scores = {"accuracy": _percent((truth == found).mean() if len(truth) else 0.0), **scores}
    unseen = int((truth >= known).sum())
    if unseen:
        scores["unseen_labels"] = unseen
    if len(names) <= MOST_CLASSES:
        scores["confusion"] = {
            name: dict(zip(names[:known], row[:known], strict=True))
            for name, row in zip(names, matrix.tolist(), strict=True)
        }
    return scores


def several_scores(truth: Numbers, found: Numbers, names: Sequence[str]) -> dict[str, Any]:
    """For 0/1 tables ``(n, K)``: examples with all labels right, F1 over all labels (micro) and of each class. Further columns of
    ``truth`` are classes that occur in the data alone."""
    found = _as_wide(found, truth)
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


def _as_wide(found: Numbers, truth: Numbers) -> Numbers:
    """Answers ``(n, K)`` with a column of 0 for each class that only ``truth`` has."""
    return np.pad(found, ((0, 0), (0, truth.shape[1] - found.shape[1])))


def _percent(share: Any) -> float:
    return 100.0 * float(share)


MOST_STATISTICS = 20_000_000
"""Counts of (examples, classes) up to which the macro F1 of resampled examples is computed."""


def judged_measures(
    labels: Sequence[str], found: Numbers, targets: Targets, tolerance: float
) -> list[Measure]:
    """The measures of `class_scores`, `several_scores` or `number_scores` by counts of each example."""
    truth, names = targets.judged(labels)
    if targets.kind == "number":
        truth = targets.numbers(truth[:, None])
        error, ones = found - truth, np.ones(len(truth))
        return [
            share_right("accuracy", np.abs(error) < tolerance),
            Measure("mse", columns(error**2, ones), mean, False),
            Measure("mae", columns(np.abs(error), ones), mean, False),
            Measure("r2", columns(error**2, ones, truth, truth**2), _explained),
        ]
    if targets.kind == "classes":
        found = _as_wide(found, truth)
        hits, basis = truth * found, digest(targets.names)
        micro = Measure("micro_f1", columns(hits.sum(1), found.sum(1), truth.sum(1)), f1, basis=basis)
        macro = Measure("macro_f1", np.concatenate([hits, found, truth], axis=1), _macro, basis=basis)
        return [replace(share_right("accuracy", (truth == found).all(1)), basis=basis), micro, macro]
    accuracy = share_right("accuracy", truth == found)
    if len(truth) * len(names) * 3 > MOST_STATISTICS:
        return [accuracy]
    there, given = np.eye(len(names))[truth], np.eye(len(names))[found]
    statistics = np.concatenate([there * given, given, there], axis=1)
    return [accuracy, Measure("macro_f1", statistics, _macro, basis=digest(targets.names))]


def _macro(sums: Numbers) -> Numbers:
    """The mean F1, in percent, over the classes that occur or are found, of sums (…, 3·classes)."""
    hits, found, there = np.split(sums, 3, axis=-1)
    counted = (found + there) > 0
    each = f1_of(hits, found, there) * counted
    total: Numbers = 100.0 * each.sum(-1) / np.maximum(counted.sum(-1), 1)
    return total


def _explained(sums: Numbers) -> Numbers:
    """R² = 1 − Σ error² / Σ (y − ȳ)² of sums (…, 4): squared errors, examples, y, y²."""
    squared, count, total, squares = np.moveaxis(sums, -1, 0)
    variance = squares / count - (total / count) ** 2
    flat = variance <= 1e-12 * np.maximum(squares / count, 1e-300)
    explained: Numbers = np.where(flat, 0.0, 1 - squared / count / np.where(flat, 1.0, variance))
    return explained
