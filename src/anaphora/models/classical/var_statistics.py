"""The least squares behind a vector autoregression, and the tail of the F distribution."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Below this share of its own length left after the columns before it, a column is too near them for the Gram matrix,
# which squares the condition: the error would exceed about 1e-11.
NEAR = 1e-2


def triangle(M: Floats) -> Floats:
    """The R of M = Q R, (columns, columns) with a positive diagonal where M has full rank.

    Well separated columns take the Cholesky factor of Mᵀ M, others Householder's reflections.
    """
    gram = M.T @ M
    try:
        R = np.linalg.cholesky(gram).T.astype(np.float64)
        if (np.diag(R) >= NEAR * np.sqrt(np.diag(gram))).all():
            return R
    except np.linalg.LinAlgError:
        pass
    if len(M) < M.shape[1]:
        M = np.concatenate([M, np.zeros((M.shape[1] - len(M), M.shape[1]))])
    R = np.asarray(np.linalg.qr(M, mode="r"), dtype=np.float64)
    return R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), the regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # the fraction converges fast on the other side
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(1.0 - (a + b) * x / (a + 1.0), tiny)
    value = d
    for k in range(1, 10_000):
        before = value
        for term in (
            k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k)),
            -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1)),
        ):
            d = 1.0 / (1.0 + term * d or tiny)
            c = 1.0 + term / c or tiny
            value *= c * d
        if abs(value - before) <= 1e-15 * abs(value):
            break
    return front * value / a


def f_tail(value: float, numerator: float, denominator: float) -> float:
    """P(F > value) for an F of that many degrees of freedom."""
    if value <= 0.0:
        return 1.0
    return incomplete_beta(denominator / 2, numerator / 2, denominator / (denominator + numerator * value))
