"""How good classes and numbers are. Shares are in percent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.labelled_targets import Targets
from anaphora.kinds.measures.judged import (
    Judged,
    Measure,
    Measured,
    columns,
    counted,
    digest,
    mean,
    share_right,
    values,
)

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


def class_measures(
    targets: Targets, labels: Sequence[str], found: Numbers, tolerance: float = 0.0
) -> Measured:
    """Measure how good the answers ``found`` are (see `Targets.answers`) for examples with these ``labels``."""
    truth, names = targets.judged(labels)
    if targets.kind == "number":
        return number_measures(targets.numbers(truth[:, None]), found, tolerance)
    if targets.kind == "classes":
        return several_measures(truth, found, names, targets.names)
    return one_class_measures(truth, found, names, targets.names)


def one_class_measures(truth: Numbers, found: Numbers, names: Sequence[str], own: Sequence[str]) -> Measured:
    """Accuracy; F1 of each class and their mean over the classes that occur or are found; the confusion matrix.

    The first classes are the model's ``own``; the others occur in the data alone, and no answer is right there.
    """
    matrix = confusion(truth, found, len(names))
    sums = np.concatenate([np.diag(matrix), matrix.sum(0), matrix.sum(1)]).astype(np.float64)

    def each() -> Numbers:
        there, given = np.eye(len(names))[truth], np.eye(len(names))[found]
        return np.concatenate([there * given, given, there], axis=1)

    accuracy = share_right("accuracy", truth == found)
    macro = Measure("macro_f1", each, _macro, basis=digest(own), sums=sums)
    report: dict[str, Any] = {**values([accuracy, macro]), "by_class": _by_class(sums, names)}
    unseen = int((truth >= len(own)).sum())
    if unseen:
        report["unseen_labels"] = unseen
    if len(names) <= MOST_CLASSES:
        report["confusion"] = {
            name: dict(zip(names[: len(own)], row[: len(own)], strict=True))
            for name, row in zip(names, matrix.tolist(), strict=True)
        }
    few = len(truth) * len(names) * 3 <= MOST_STATISTICS
    return Measured([accuracy, macro] if few else [accuracy], report)


def several_measures(truth: Numbers, found: Numbers, names: Sequence[str], own: Sequence[str]) -> Measured:
    """For 0/1 tables ``(n, K)``: examples with all labels right, F1 over all labels (micro) and of each class. Further columns of
    ``truth`` are classes that occur in the data alone."""
    found = np.pad(found, ((0, 0), (0, truth.shape[1] - found.shape[1])))
    hits, basis = truth * found, digest(own)
    statistics = np.concatenate([hits, found, truth], axis=1)
    measures = [
        share_right("accuracy", (truth == found).all(1), basis),
        counted("micro_f1", columns(hits.sum(1), found.sum(1), truth.sum(1)), _micro, basis=basis),
        counted("macro_f1", statistics, _macro, basis=basis),
    ]
    return Measured(measures, {**values(measures), "by_class": _by_class(statistics.sum(0), names)})


def number_measures(truth: Numbers, found: Numbers, tolerance: float) -> Measured:
    """Mean squared and absolute error, the share of the variance explained, and the share of answers nearer to
    the true number than ``tolerance``."""
    error, ones = found - truth, np.ones(len(truth))
    away = truth - truth.mean()  # numbers far from 0 would have no digits left for their squares
    measures = [
        share_right("accuracy", np.abs(error) < tolerance),
        counted("mse", columns(error**2, ones), mean, False),
        counted("mae", columns(np.abs(error), ones), mean, False),
        counted("r2", columns(error**2, ones, away, away**2), _explained),
    ]
    return Measured(measures, values(measures))


def _by_class(sums: Numbers, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Precision, recall and F1 of each class in percent, and how many examples it has, of sums (3·classes,)."""
    hits, found, there = np.split(sums, 3)
    f1 = f1_of(hits, found, there)
    return {
        name: {
            "precision": 100.0 * float(hits[i] / max(found[i], 1)),
            "recall": 100.0 * float(hits[i] / max(there[i], 1)),
            "f1": 100.0 * float(f1[i]),
            "examples": int(there[i]),
        }
        for i, name in enumerate(names)
    }


MOST_STATISTICS = 20_000_000
"""Counts of (examples, classes) up to which the macro F1 of resampled examples is computed."""


def _micro(sums: Numbers) -> Numbers:
    """Return F1 in percent over all labels, of sums (…, 3)."""
    return 100.0 * f1_of(sums[..., 0], sums[..., 1], sums[..., 2])


def _macro(sums: Numbers) -> Numbers:
    """Return the mean F1, in percent, over the classes that occur or are found, of sums (…, 3·classes)."""
    hits, found, there = np.split(sums, 3, axis=-1)
    there_or_found = (found + there) > 0
    each = f1_of(hits, found, there) * there_or_found
    total: Numbers = 100.0 * (each.sum(-1) / np.maximum(there_or_found.sum(-1), 1))
    return total


def _explained(sums: Numbers) -> Numbers:
    """R² = 1 − Σ error² / Σ (y − ȳ)² of sums (…, 4): squared errors, examples, y, y² (of y from anywhere)."""
    squared, count, total, squares = np.moveaxis(sums, -1, 0)
    variance = squares / count - (total / count) ** 2
    flat = variance <= 1e-12 * np.maximum(squares / count, 1e-300)
    explained: Numbers = np.where(flat, 0.0, 1 - squared / count / np.where(flat, 1.0, variance))
    return explained


# ---------------------------------------------------------------------- answers to questions
KINDS = 20
"""Most kinds of questions that are kept apart."""


def answer_measures(rows: Sequence[Sequence[str]], answers: Sequence[str]) -> Measured:
    """Measure the accuracy of the ``answers`` to questions, in percent; ``rows`` are question, answer and what else is known."""
    right = [answer == row[1] for answer, row in zip(answers, rows, strict=True)]
    measures = [share_right("accuracy", right)]
    return Measured(measures, {**values(measures), "by_kind": by_kind(rows, right)})


def by_kind(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> dict[str, dict[str, float]]:
    """Accuracy in percent and number of questions for each kind: the third text of a row where it has one, else the
    question's first two words; the commonest kinds, the others together."""
    kinds = [row[2] if len(row) > 2 and row[2].strip() else " ".join(row[0].split()[:2]) for row in rows]
    common = [kind for kind, _ in Counter(kinds).most_common(KINDS)]
    named = [kind if kind in common else "other" for kind in kinds]
    return {
        kind: {
            "accuracy": 100.0
            * float(np.mean([so for name, so in zip(named, right, strict=True) if name == kind])),
            "questions": named.count(kind),
        }
        for kind in dict.fromkeys([*common, *named])
    }


def answers_judged(
    pictures: Sequence[Sequence[Sequence[str]]],
    chances: NDArray[np.float64],
    answers: Sequence[str],
    seconds: float,
) -> Judged:
    """Accuracy; ``chances`` (questions, answers). Questions about one picture are drawn together."""
    rows = [row for about in pictures for row in about]
    place = {answer: number for number, answer in enumerate(answers)}
    outputs = [answers[int(best)] for best in chances.argmax(1)]
    wanted = [chances[i, place[row[1]]] if row[1] in place else 0.0 for i, row in enumerate(rows)]
    return Judged(
        [f"picture {number}: {row[0]}" for number, about in enumerate(pictures, start=1) for row in about],
        [row[1] for row in rows],
        outputs,
        1.0 - np.array(wanted),
        answer_measures(rows, outputs).measures,
        seconds,
        groups=np.repeat(np.arange(len(pictures)), [len(about) for about in pictures]),
    )
