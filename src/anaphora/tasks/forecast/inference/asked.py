"""The options of a forecaster's ``predict``: which it refuses, and the forecasts it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anaphora.data.series import SeriesData
from anaphora.data.series_ahead import floors
from anaphora.data.series_scale import Columns
from anaphora.inference.session import check_finite
from anaphora.tasks.forecast.inference.ahead import along, in_units, look_ahead, with_interval
from anaphora.tasks.forecast.info import ForecasterSettings, ForecastOptions

if TYPE_CHECKING:
    from anaphora.tasks.forecast.estimator import Forecaster


def why_not(options: ForecastOptions, s: ForecasterSettings, columns: Columns) -> str | None:
    """Why a forecaster of ``s`` and ``columns`` cannot do what is asked, without a full stop; None where it can."""
    if options.horizon and not s.horizon:
        return f"horizon = {options.horizon} has no meaning for an aligned forecaster; leave it out"
    if options.interval and options.horizon > s.horizon:
        return f"interval is known for the {s.horizon} steps trained for only; leave out horizon or interval"
    if options.interval and columns.output == "binary":
        return "interval has no meaning for 0s and 1s: the forecasts are probabilities already"
    if options.interval and options.sample:
        return "interval and sample exclude each other; leave one out"
    if options.sample and columns.output == "continuous":
        return "sample draws counts and 0s and 1s; continuous targets have an interval instead"
    return None


def forecast(m: Forecaster, data: SeriesData, options: ForecastOptions) -> list[Any]:
    """Of each series an array (steps, targets) in the units of the data, or a `Prediction` where ``interval`` is set.

    The model of ``m`` is in evaluation mode. Raises a `DataError` where a forecast is not finite.
    """
    s, columns = m.settings_, m.columns_
    if not s.horizon:
        means = along(m.model_, data, columns, window=s.window)
    else:
        means = look_ahead(
            m.model_,
            data,
            columns,
            window=s.window,
            trained=s.horizon,
            horizon=options.horizon or s.horizon,
            draw=np.random.default_rng(options.seed) if options.sample else None,
        )
    check_finite(means, "series")
    found = zip(means, floors(data, columns, aligned=not s.horizon), strict=True)
    if options.interval:
        errors = m._errors()
        return [with_interval(mean, errors, options.interval, columns, floor) for mean, floor in found]
    return [in_units(mean, columns, floor) for mean, floor in found]
