"""Series laid out for a vector autoregression, its least squares, and the tail of the F distribution."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anaphora.errors import DataError

Floats = NDArray[np.float64]

# Below this share of its own length left after the columns before it, a column is too near them for the Gram matrix,
# which squares the condition: the error would exceed about 1e-11.
NEAR = 1e-2


def designs(pieces: list[Floats], trend: int, order: int) -> Floats:
    """`design_of` all pieces that are long enough; where none is, the longest raises the error."""
    fit = [piece for piece in pieces if piece.shape[1] > order] or [max(pieces, key=lambda p: p.shape[1])]
    return np.concatenate([design_of(piece, trend, order) for piece in fit])


def design_of(series: Floats, trend: int, order: int) -> Floats:
    """[1, t, yₜ₋₁ … yₜ₋ₚ, yₜ] of every step with p before it: (rows, trend + p m + m); ``trend`` says how many of 1 and t
    there are."""
    count, steps, m = series.shape
    if steps <= order:
        raise DataError(f"y: has {steps} steps, but {order} lags need more than {order}.")
    design = np.empty((count, steps - order, trend + (order + 1) * m))
    design[..., : min(trend, 1)] = 1.0
    if trend == 2:
        design[..., 1] = np.arange(order + 1, steps + 1)
    for lag in range(1, order + 1):
        design[..., trend + (lag - 1) * m : trend + lag * m] = series[:, order - lag : steps - lag]
    design[..., trend + order * m :] = series[:, order:]
    return design.reshape(-1, design.shape[2])


def pieces_of(y: ArrayLike) -> list[Floats]:
    """Arrays (series, time, m), checked: one, or one for each series where their lengths differ."""
    if (
        isinstance(y, list | tuple)
        and len({np.shape(one) for one in y}) > 1
        and all(np.ndim(one) == 2 for one in y)
    ):
        pieces = [series_of(one) for one in y]
        if len({piece.shape[2] for piece in pieces}) > 1:
            raise DataError("y: the series have different numbers of values; give all of them the same.")
        return pieces
    return [series_of(y)]


def series_of(y: ArrayLike) -> Floats:
    """(series, time, m), checked."""
    try:
        array = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("y: is not an array of numbers of one length.") from None
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or 0 in array.shape:
        raise DataError(
            f"y: is {np.shape(y)}; give (time, values) or (series, time, values), none of them empty."
        )
    if not np.isfinite(array).all():
        raise DataError(
            "y: holds a NaN or an infinity; fill the gaps first, or use an.Kalman, which takes them."
        )
    return array


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
