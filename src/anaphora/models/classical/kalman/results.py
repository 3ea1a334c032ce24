"""What filtering, smoothing and forecasting give. Without a batch axis in, there is none out."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Filtered:
    """p(hₜ | y₁ … yₜ), and before yₜ was seen p(hₜ | y₁ … yₜ₋₁).

    mean, predicted_mean (series, time, n); covariance, predicted_covariance (series, time, n, n), read-only views
    where series share them; log_likelihood (series,).
    """

    mean: Floats
    covariance: Floats
    predicted_mean: Floats
    predicted_covariance: Floats
    log_likelihood: Any


@dataclass(frozen=True)
class Smoothed:
    """p(hₜ | y₁ … y_T): mean (series, time, n), covariance (series, time, n, n).

    gain (series, time, n, n) is the smoother's J, zero at the last step; log_likelihood (series,).
    """

    mean: Floats
    covariance: Floats
    gain: Floats
    log_likelihood: Any

    @property
    def lag_covariance(self) -> Floats:
        """Cov(hₜ₊₁, hₜ | y₁ … y_T) = Vₜ₊₁ Jₜᵀ: (series, time − 1, n, n)."""
        lag: Floats = self.covariance[..., 1:, :, :] @ np.swapaxes(self.gain[..., :-1, :, :], -1, -2)
        return lag


@dataclass(frozen=True)
class Forecast:
    """The outputs ahead: mean (series, steps, m), covariance (series, steps, m, m), and the interval low … high
    (series, steps, m), which holds each value with probability ``level``."""

    mean: Floats
    covariance: Floats
    low: Floats
    high: Floats
    level: float


Result = TypeVar("Result", Filtered, Smoothed, Forecast)


def first_series(result: Result) -> Result:
    """The same without the batch axis; a log-likelihood becomes a float."""
    values = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if isinstance(value, np.ndarray):
            value = float(value[0]) if value.ndim == 1 else value[0]
        values[field.name] = value
    return type(result)(**values)
