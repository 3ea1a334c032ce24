"""Vectors of symbols as a trace: the matrix with its names, and an exact projection onto its main axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import MAX_TOKENS, Array, Trace

__all__ = ["probe_vectors"]


def probe_vectors(
    names: Sequence[str], matrix: ArrayLike, *, facts: Mapping[str, Any] | None = None
) -> Trace:
    """A trace of ``matrix`` (symbols, width): at most the first 4096, which in a vocabulary are the commonest.

        embeddings (symbol, unit)     the vectors
        projection (symbol, rank)     their first three principal components, centred
        spread (unit,)                share of the variance along every principal component, largest first

    ``names``: of the symbols; ``facts``: what else the trace should say. Raises an `AnaphoraError` for fewer than two vectors, for
    another number of names, and for numbers that are not finite.

    >>> from anaphora.probe.vectors import probe_vectors
    >>> probe_vectors(["a", "b", "c"], np.eye(3)).array("projection", "symbol", "rank").shape
    (3, 3)
    """
    values = np.asarray(matrix, np.float32)
    if values.ndim != 2 or len(names) != len(values) or len(values) < 2:
        raise AnaphoraError("vectors are a matrix with at least two rows, and one name for each of them.")
    if not np.isfinite(values).all():
        raise AnaphoraError("the vectors hold NaN or infinity, so they have no principal components.")
    values, kept = values[:MAX_TOKENS], list(names[:MAX_TOKENS])
    centred = values.astype(np.float64) - values.mean(0, dtype=np.float64)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    # the sign of an axis is arbitrary: make its largest entry positive, so that pictures do not flip
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])
    projection = centred @ (axes * signs[:, None])[:3].T
    variance = sizes**2
    arrays = {
        "embeddings": Array(("symbol", "unit"), values),
        "projection": Array(("symbol", "rank"), projection.astype(np.float32)),
        "spread": Array(("rank",), variance / max(float(variance.sum()), 1e-300)),
    }
    # both have an axis of ranks, of which only the variances name all
    arrays["spread"] = Array(("unit",), arrays["spread"].values)
    return Trace({"symbol": kept}, arrays, {"symbols": len(names), **(facts or {})})
