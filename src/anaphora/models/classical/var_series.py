"""Series as a vector autoregression takes them: checked, and laid out for least squares."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anaphora.errors import DataError

Floats = NDArray[np.float64]


def designs(pieces: list[Floats], trend: int, order: int) -> Floats:
    """`design_of` all pieces that are long enough; where none is, the longest says so."""
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
