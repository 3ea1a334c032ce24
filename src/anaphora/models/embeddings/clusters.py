"""Neighbours and clusters of unit vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.errors import DataError
from anaphora.models.embeddings.vectors import unit

Vectors = np.ndarray[Any, np.dtype[np.float32]]
_ROWS = 512
_ROUNDS = 100


def neighbours(queries: Vectors, vectors: Vectors, k: int) -> list[list[tuple[int, float]]]:
    """For each of ``queries`` ``(n, size)`` the ``k`` rows of ``vectors`` of the highest cosine, the best first."""
    if k < 1:
        raise DataError(f"{k} neighbours cannot be found; ask for 1 or more.")
    found: list[list[tuple[int, float]]] = []
    for start in range(0, len(queries), _ROWS):
        scores = queries[start : start + _ROWS] @ vectors.T
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(scores, order, 1)
        found += [list(zip(*pair, strict=True)) for pair in zip(order.tolist(), best.tolist(), strict=True)]
    return found


def spherical_kmeans(vectors: Vectors, k: int, *, seed: int) -> tuple[list[int], Vectors, float]:
    """Clusters whose centres are the directions of the means of their vectors (Dhillon 2001), begun as k-means++.

    vectors ``(n, size)`` -> the cluster of each (the largest is 0), centres ``(k, size)``, the mean cosine with the centre.
    """
    if not 1 <= k <= len(vectors):
        raise DataError(f"{len(vectors)} inputs cannot make {k} clusters; ask for 1 to {len(vectors)}.")
    draw = np.random.RandomState(seed)
    centres = vectors[[draw.randint(len(vectors))]]
    while len(centres) < k:
        far = np.maximum(1.0 - (vectors @ centres.T).max(1).astype(np.float64), 0.0)
        share = far / far.sum() if far.sum() > 0 else np.full(len(far), 1 / len(far))
        centres = np.concatenate((centres, vectors[[draw.choice(len(vectors), p=share)]]))
    labels = np.full(len(vectors), -1)
    for _ in range(_ROUNDS):
        now = (vectors @ centres.T).argmax(1)
        if (now == labels).all():
            break
        labels = now
        sums = np.zeros_like(centres, dtype=np.float64)
        np.add.at(sums, labels, vectors)
        filled = np.bincount(labels, minlength=k) > 0  # an empty cluster keeps its centre
        centres = np.where(filled[:, None], unit(sums), centres)
    order = np.argsort(-np.bincount(labels, minlength=k), kind="stable")
    ranked = np.argsort(order, kind="stable")[labels]
    return ranked.tolist(), centres[order], float((vectors * centres[labels]).sum(1).mean())
