"""Ridge regression whose penalty is chosen by what each example is predicted without it. In float64, without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
PENALTIES = np.logspace(-6, 1, 15)
"""Penalties that are tried, for each feature."""
MOST_EXAMPLES = 5000
"""Up to so many examples the matrix of their products is decomposed; with more, that of the features is solved."""
DOUBTED = 1500
"""Up to so many examples it is tried whether they are predicted better without the doubtful features; of more, those do no harm."""
JUDGES = 1000
"""Of more examples so many, or a fifth, are held out to choose the penalty by."""


class Fit(NamedTuple):
    """Predictions are ``((x − mean) / scale) @ weight + bias``."""

    mean: Array
    scale: Array
    weight: Array
    bias: Array
    penalty: float
    held: Array
    """What examples are predicted by a regression that has not seen them, ``(n, outputs)``."""
    rows: np.ndarray[Any, np.dtype[np.int64]]
    """The numbers of these examples."""


def ridge(features: Callable[[], Iterable[Array]], truth: Array, width: int, doubtful: int = 0) -> Fit:
    """Minimise |y − ŷ|² + penalty |w|² over standardised features, with the penalty that predicts unseen examples best. The last ``doubtful``
    features are left out, with weights of 0, where that is better still.

    Args:
        features: called once or more often, gives the rows ``(some, width)`` of all examples in their order, in pieces.
        truth: y, ``(n, outputs)``.
        width: features of an example.
    """
    if len(truth) <= MOST_EXAMPLES:
        return _by_examples(np.concatenate(list(features())), truth, doubtful)
    return _by_features(features, truth, width)


def _by_examples(x: Array, y: Array, doubtful: int) -> Fit:
    """With ŷ = K c of the products K of centred examples, leaving example i out changes what it is predicted to yᵢ − cᵢ / Gᵢᵢ, where G
    = (K + penalty)⁻¹ without the direction in which all examples are alike, which is that of the mean."""
    mean, scale = _spread(x.mean(0), x.std(0))
    z = (x - mean) / scale
    n, bias, sure = len(z), y.mean(0), z.shape[1] - doubtful
    best: tuple[float, float, int, Array, Array] | None = None
    for width in (sure, z.shape[1]) if doubtful and n <= DOUBTED else (z.shape[1],):
        values, vectors = np.linalg.eigh(z[:, :width] @ z[:, :width].T)
        values, squares, turned = values.clip(0), np.square(vectors), vectors.T @ (y - bias)
        for penalty in PENALTIES * width:
            shrunk = 1 / (values + penalty)
            c = vectors @ (shrunk[:, None] * turned)
            diagonal = squares @ shrunk - 1 / (n * penalty)
            held = y - c / np.maximum(diagonal, 1e-300)[:, None]
            error = float(np.square(held - y).mean())
            if best is None or error < best[0]:
                best = (error, penalty, width, c, held)
    assert best is not None
    _, penalty, width, c, held = best
    weight = np.zeros((z.shape[1], y.shape[1]))
    weight[:width] = z[:, :width].T @ c
    return Fit(mean, scale, weight, bias, penalty, held, np.arange(n))


def _by_features(features: Callable[[], Iterable[Array]], y: Array, width: int) -> Fit:
    """From sums over the examples, which are read in pieces; some are held out of them at first to choose the penalty by."""
    n = len(y)
    judging = np.zeros(n, bool)
    judging[np.random.RandomState(0).permutation(n)[: min(JUDGES, n // 5)]] = True
    total, square, cross = np.zeros(width), np.zeros((width, width)), np.zeros((width, y.shape[1]))

    def add(some: Array, truth: Array) -> None:
        np.add(total, some.sum(0), out=total)
        np.add(square, some.T @ some, out=square)
        np.add(cross, some.T @ truth, out=cross)

    judged, first = [], 0
    for piece in features():
        own, held = y[first : first + len(piece)], judging[first : first + len(piece)]
        first += len(piece)
        judged.append(piece[held])
        add(piece[~held], own[~held])
    x = np.concatenate(judged)
    tried = []
    for penalty in PENALTIES[2::3] * width:
        found = _solved(total, square, cross, y[~judging], penalty)
        answers = ((x - found.mean) / found.scale) @ found.weight + found.bias
        tried.append((float(np.square(answers - y[judging]).mean()), penalty, answers))
    _, penalty, answers = min(tried, key=lambda one: one[0])
    add(x, y[judging])
    return _solved(total, square, cross, y, penalty)._replace(held=answers, rows=np.flatnonzero(judging))


def _solved(total: Array, square: Array, cross: Array, y: Array, penalty: float) -> Fit:
    n = len(y)
    plain, bias = total / n, y.mean(0)
    variance = np.diag(square) / n - plain**2
    mean, scale = _spread(plain, np.sqrt(variance.clip(0)))
    of_features = (square - n * np.outer(mean, mean)) / np.outer(scale, scale)
    of_features[np.diag_indices(len(mean))] += penalty
    of_targets = (cross - n * np.outer(mean, bias)) / scale[:, None]
    return Fit(
        mean, scale, np.linalg.solve(of_features, of_targets), bias, penalty, y[:0], np.zeros(0, np.int64)
    )


def _spread(mean: Array, deviation: Array) -> tuple[Array, Array]:
    """What features are measured by; one that never changes is only shifted."""
    return mean, np.where(deviation > 1e-6, deviation, 1.0)
