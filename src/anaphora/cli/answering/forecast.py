"""Forecasts as CSV with the columns of the input, and the same as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anaphora.cli.answering.response import Response
from anaphora.data.series import SeriesData
from anaphora.data.series_answers import head_of, rows_of
from anaphora.data.series_scale import Columns
from anaphora.tasks.bulk.windows import Item
from anaphora.tasks.bulk.worker import Answer
from anaphora.tasks.forecast.estimator import Forecaster
from anaphora.tasks.forecast.inference.ahead import Prediction


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
    header = head_of(data, columns, bounds=isinstance(found[0], Prediction))
    parts = zip(rows_of(data, columns, found, aligned=aligned), found, strict=True)
    for number, ((one, times, rows), forecast) in enumerate(parts):
        record: dict[str, Any] = {"series": one.name, "columns": list(columns.targets)}
        record |= {"times": times} if times else {}
        record["forecast"] = _rounded(forecast.mean if isinstance(forecast, Prediction) else forecast)
        if isinstance(forecast, Prediction):
            record |= {
                "low": _rounded(forecast.low),
                "high": _rounded(forecast.high),
                "level": forecast.level,
            }
        lines = [[cell if isinstance(cell, str) else f"{cell:.6g}" for cell in row] for row in rows]
        yield Response(_csv(lines if number else [header, *lines]), record)


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
