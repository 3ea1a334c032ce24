"""Forecasts from the end of series: as far as was trained at once, further by going on from what was forecast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data import series_ahead
from anaphora.data.series import SeriesData
from anaphora.data.series_ahead import go_ahead, in_units, interval_of, observed, paths_of
from anaphora.data.series_scale import Columns
from anaphora.kinds.result import Result
from anaphora.models.forecaster_ancestor import Ancestor
from anaphora.tasks.forecast.inference.running import chain_of, outputs, run_unseen

__all__ = ["Prediction", "along", "in_units", "look_ahead", "observed", "with_interval"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction(Result):
    """Forecasts in the units of the data, (steps, targets); ``low`` … ``high`` holds a value with probability ``level``."""

    mean: Floats
    low: Floats
    high: Floats
    level: float

    def __str__(self) -> str:
        rows = zip(self.mean, self.low, self.high, strict=True)
        return "\n".join(
            "  ".join(f"{m:.6g} [{a:.6g}, {b:.6g}]" for m, a, b in zip(*row, strict=True)) for row in rows
        )


def look_ahead(
    model: Any,
    data: SeriesData,
    columns: Columns,
    *,
    window: int,
    trained: int,
    horizon: int,
    draw: np.random.Generator | None = None,
) -> list[Floats]:
    """For each series the next ``horizon`` steps (horizon, targets): standardised values, rates or probabilities, or
    what was drawn by ``draw``. All series go through the model together, which does not change what comes out."""
    classical = isinstance(model, Ancestor)
    paths = paths_of(data, columns, least=1 if classical else window, horizon=horizon)
    if classical:
        return [
            model.forecast(columns.standardised(values), np.array([end]), horizon)[0] for values, end in paths
        ]
    options = {"window": window, "trained": trained, "horizon": horizon}
    return go_ahead(
        lambda batch: run_unseen(model, batch), paths, columns, draw=draw, chain=chain_of(model), **options
    )


def along(model: Any, data: SeriesData, columns: Columns, *, window: int) -> list[Floats]:
    """Aligned: the targets of every step, (time, targets) for each series."""
    return series_ahead.along(
        lambda windows: outputs(model, windows, range(len(windows)), by=run_unseen),
        data,
        columns,
        window=window,
        chain=chain_of(model),
    )


def with_interval(mean: Floats, errors: Floats, level: float, columns: Columns, floor: Floats) -> Prediction:
    """Forecasts and their interval in the units of the data; ``errors`` are the quantiles of |error|, and nothing is below ``floor``."""
    return Prediction(*interval_of(mean, errors, level, columns, floor), level)
