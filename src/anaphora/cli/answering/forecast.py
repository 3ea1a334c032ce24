"""Forecasts as CSV with the columns of the input, and the same as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anaphora.cli.answering.response import Response
from anaphora.data.series import Series, SeriesData
from anaphora.data.series_scale import Columns
from anaphora.data.series_times import continued
from anaphora.tasks.bulk.windows import Item
from anaphora.tasks.bulk.worker import Answer
from anaphora.tasks.forecast.estimator import Forecaster
from anaphora.tasks.forecast.inference.ahead import Prediction, observed


def asked(model: Forecaster, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """For each series of a CSV file its forecasts: all are made together, as a forecast that is drawn depends on all."""
    data = model._opened(source, role="test")
    found = model._predicted(data, **{"horizon": 0, "interval": 0.0, "sample": False, "seed": 1, **options})
    aligned = not model.settings_.horizon
    yield [Item(response) for response in _responses(data, model.columns_, found, aligned=aligned)]


def answering(model: Forecaster, options: Mapping[str, Any]) -> Answer:
    """The forecasts as CSV, with the time going on where it is regular."""
    return lambda asked: (response for _, response in asked)


def _responses(
    data: SeriesData, columns: Columns, found: Sequence[Any], *, aligned: bool
) -> Iterator[Response]:
    """One response per series; the header comes before the first."""
    bounds = isinstance(found[0], Prediction)
    header = [data.time_name] if data.time_name else []
    header += ["series"] if len(data.series) > 1 or data.series_name else []
    for name in columns.targets:
        header += [name, f"{name}_low", f"{name}_high"] if bounds else [name]
    for number, (one, forecast) in enumerate(zip(data.series, found, strict=True)):
        mean = forecast.mean if isinstance(forecast, Prediction) else forecast
        times = _times(one, columns, len(mean), aligned) if data.time_name else []
        record: dict[str, Any] = {"series": one.name, "columns": list(columns.targets)}
        record |= {"times": times} if times else {}
        record["forecast"] = _rounded(mean)
        if isinstance(forecast, Prediction):
            record |= {
                "low": _rounded(forecast.low),
                "high": _rounded(forecast.high),
                "level": forecast.level,
            }
        rows = []
        for step in range(len(mean)):
            row = [times[step]] if times else []
            row += [one.name] if "series" in header else []
            for place in range(len(columns.targets)):
                values = (
                    [mean]
                    if not isinstance(forecast, Prediction)
                    else [forecast.mean, forecast.low, forecast.high]
                )
                row += [f"{value[step, place]:.6g}" for value in values]
            rows.append(row)
        yield Response(_csv(rows if number else [header, *rows]), record)


def _times(one: Series, columns: Columns, steps: int, aligned: bool) -> list[str]:
    if aligned:
        return list(one.times)
    end = observed(one, columns, steps)
    given = one.times[end : end + steps]
    return list(given) if len(given) == steps else continued(one.times[:end], steps)


def _rounded(values: Any) -> list[Any]:
    """Seven digits are more than a forecast has."""
    found: list[Any] = (
        np.array([float(f"{v:.7g}") for v in np.ravel(values)]).reshape(np.shape(values)).tolist()
    )
    return found


def _csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().rstrip("\n")
