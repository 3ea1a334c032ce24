"""The forecaster's ancestors: a vector autoregression and a linear dynamical system behind one interface.

Both take standardised series (time, columns) with NaN where a value is missing, and give forecasts from many places of
them at once. Of steps to come they see the columns known in advance and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from anaphora.data.series_scale import Columns
from anaphora.data.series_windows import fill_forward
from anaphora.errors import DataError
from anaphora.models.classical.kalman import Kalman
from anaphora.models.classical.kalman.model import from_lags, structural
from anaphora.models.classical.kalman.parameters import MATRICES, NAMES
from anaphora.models.classical.var import VAR, UndeterminedError
from anaphora.models.forecaster_ancestor import Ancestor, Floats, Places
from anaphora.models.forecaster_median import MedianForecaster

Structure = Literal["level", "trend", "dynamic"]
LONGEST = 2000
"""Steps at the end of each series that EM looks at: variances need no more."""
VARIANCES = ("D", "Q", "R")
ROWS = 10
"""Steps for each coefficient of an equation that orders to choose among must leave: fewer fit anything."""


class VARForecaster(Ancestor):
    """Each step from the p before it, all columns together; see `VAR`.

    Where a known column brings a surprise u_k, the others follow it as their shocks go with it: E[u | u_k] = Σ_uk Σ_kk⁻¹ u_k.
    A missing value counts as that of the step before; steps whose lags hold one are left out of the fit.
    """

    def __init__(self, columns: Columns, coefficients: Floats, intercept: Floats, covariance: Floats):
        self.coefficients, self.intercept, self.covariance = coefficients, intercept, covariance
        self._targets, self._known = columns.places(columns.targets), columns.places(columns.known)

    @classmethod
    def fit(cls, series: Sequence[Floats], columns: Columns, *, lags: int, max_lags: int) -> VARForecaster:
        """By least squares; ``lags`` 0 lets Schwarz's criterion choose among 1 … ``max_lags``.

        Series that follow from few lags without an error (a line, a sine) do not determine the coefficients of more:
        then the most lags that are determined are taken.
        """
        pieces = [piece for values in series for piece in _whole_stretches(values)]
        if not pieces:
            raise DataError(
                "no two steps without a gap follow each other; a VAR cannot learn from such series."
            )
        longest = max(len(piece) for piece in pieces)
        most = max(1, min(max_lags, longest // (ROWS * len(columns.names))))
        order = lags or max(1, VAR("bic", max_lags=most).select_order(pieces).best["bic"])
        model = VAR(order)
        for fewer in range(order, 0, -1):
            try:
                model = VAR(fewer).fit(pieces)
                break
            except UndeterminedError:
                if lags or fewer == 1:
                    raise
        return cls(columns, model.coefficients, model.intercept, model.covariance)

    def forecast(self, values: Floats, ends: Places, horizon: int) -> Floats:
        order, m = len(self.coefficients), len(self.intercept)
        padded = np.concatenate([np.zeros((order, m)), fill_forward(values)])
        path = [padded[ends + order - lag] for lag in range(order, 0, -1)]
        K = self._known
        weights = (
            self.covariance[:, K] @ np.linalg.pinv(self.covariance[np.ix_(K, K)], hermitian=True)
            if K
            else None
        )
        ahead = []
        for step in range(horizon):
            value = self.intercept + sum(path[-lag] @ A.T for lag, A in enumerate(self.coefficients, start=1))
            if weights is not None:
                value = value + (padded[ends + order + step][:, K] - value[:, K]) @ weights.T
            path = [*path[1:], value]
            ahead.append(value[:, self._targets])
        return np.stack(ahead, axis=1)

    def arrays(self) -> dict[str, Floats]:
        return {
            "coefficients": self.coefficients,
            "intercept": self.intercept,
            "covariance": self.covariance,
            "errors": self.errors,
        }


class KalmanForecaster(Ancestor):
    """Linear-Gaussian state-space models; see `Kalman`. All history before a place is filtered, gaps and all.

    ``level`` and ``trend`` are one structural model per target, with a season where the columns have one and the known
    columns as inputs. ``dynamic`` is one system of hidden states for all targets and all unknown columns, driven by
    the known ones, with every matrix estimated.
    """

    def __init__(self, columns: Columns, models: Sequence[Kalman]):
        self.models = list(models)
        self._known = columns.places(columns.known)
        unknown = [name for name in columns.others if name not in columns.known]
        own = columns.places(columns.targets)
        joint = self.models[0].outputs == len(own) + len(unknown) and len(self.models) == 1
        self._outputs = [own + columns.places(unknown)] if joint else [[place] for place in own]
        self._told = len(own)

    def seen_by(self, number: int, values: Floats) -> tuple[Kalman, Floats, Floats]:
        """System ``number`` (from 0), and what of standardised ``values`` it has as outputs and inputs."""
        return self.models[number], values[:, self._outputs[number]], fill_forward(values[:, self._known])

    @classmethod
    def fit(
        cls, series: Sequence[Floats], columns: Columns, *, structure: Structure, states: int, iterations: int
    ) -> KalmanForecaster:
        """By expectation and maximisation."""
        known = columns.places(columns.known)
        unknown = [name for name in columns.others if name not in columns.known]
        own = columns.places(columns.targets)
        series = [values[-LONGEST:] for values in series]
        x = [fill_forward(values[:, known]) for values in series]
        groups = [own + columns.places(unknown)] if structure == "dynamic" else [[place] for place in own]
        models = []
        for outputs in groups:
            y = [values[:, outputs] for values in series]
            if structure == "dynamic":
                model = from_lags(y, x, max(1, -(-states // len(outputs))))
                free: tuple[str, ...] = MATRICES
                diagonal: tuple[str, ...] = ()
            else:
                model = structural(slope=structure == "trend", period=columns.period, inputs=len(known))
                free, diagonal = (VARIANCES if known else VARIANCES[1:]), ("Q", "R")
            longest = max(len(one) for one in y)
            stacked = np.stack([_padded(one, longest, np.nan) for one in y])
            inputs = np.stack([_padded(one, longest, 0.0) for one in x])
            model.fit(
                stacked, inputs, parameters=free, diagonal=diagonal, iterations=iterations, tolerance=1e-5
            )
            models.append(model)
        return cls(columns, models)

    def forecast(self, values: Floats, ends: Places, horizon: int) -> Floats:
        x = fill_forward(values[:, self._known])
        seen = int(ends.max(initial=0))
        parts = []
        for model, outputs in zip(self.models, self._outputs, strict=True):
            p = model.parameters
            filtered = model.filter(values[:seen, outputs], x[:seen] if self._known else None).mean
            state, ahead = filtered[ends - 1], []
            for step in range(horizon):
                inputs = x[ends + step] if self._known else np.zeros((len(ends), 0))
                state = state @ p["A"].T + inputs @ p["B"].T
                ahead.append(state @ p["C"].T + inputs @ p["D"].T)
            parts.append(np.stack(ahead, axis=1))
        return np.concatenate(parts, axis=2)[:, :, : self._told]

    def arrays(self) -> dict[str, Floats]:
        named = {
            f"{number}.{name}": value
            for number, model in enumerate(self.models)
            for name, value in model.parameters.items()
        }
        return {**named, "errors": self.errors}


def restored(columns: Columns, arrays: Mapping[str, Floats]) -> Ancestor:
    """The model whose ``arrays`` these are; a KeyError or ValueError where they are something else's."""
    made: Ancestor
    if "coefficients" in arrays:
        made = VARForecaster(columns, arrays["coefficients"], arrays["intercept"], arrays["covariance"])
    elif "effects" in arrays:
        made = MedianForecaster.of_arrays(columns, arrays)
    else:
        count = len({name.partition(".")[0] for name in arrays if name != "errors"})
        made = KalmanForecaster(
            columns,
            [Kalman(**{name: arrays[f"{number}.{name}"] for name in NAMES}) for number in range(count)],
        )
    made.errors = arrays["errors"]
    return made


def _padded(values: Floats, steps: int, filling: float) -> Floats:
    return np.pad(values, ((0, steps - len(values)), (0, 0)), constant_values=filling)


def _whole_stretches(values: Floats) -> list[Floats]:
    """The stretches of at least two steps in which nothing is missing."""
    whole = ~np.isnan(values).any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], whole, [False]]).astype(int)))
    return [values[a:b] for a, b in edges.reshape(-1, 2) if b - a > 1]
