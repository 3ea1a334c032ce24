"""Forecasts beside the names and the times of their series: as the rows of a table, and in the kind of frame that was given."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from anaphora.data.series import Series, SeriesData
from anaphora.data.series_ahead import observed
from anaphora.data.series_scale import Columns
from anaphora.data.series_times import continued, read_times
from anaphora.data.sources.sheet import with_index

FRAMES = ("pandas", "polars", "pyarrow")
"""Libraries in whose frames answers to their frames are given."""


def times_of(one: Series, columns: Columns, steps: int, *, aligned: bool) -> list[str]:
    """The times of ``steps`` forecasts of a series: those given for them, else those that follow; of an ``aligned`` forecaster its own."""
    if aligned:
        return list(one.times)
    end = observed(one, columns, steps)
    given = one.times[end : end + steps]
    return list(given) if len(given) == steps else continued(one.times[:end], steps)


def head_of(data: SeriesData, columns: Columns, *, bounds: bool) -> list[str]:
    """The names of the columns of forecasts: times and series, where there are any, then each target with the ends of its interval."""
    head = [data.time_name] if data.time_name else []
    head += [data.series_name or "series"] if len(data.series) > 1 or data.series_name else []
    for name in columns.targets:
        head += [name, f"{name}_low", f"{name}_high"] if bounds else [name]
    return head


def rows_of(
    data: SeriesData, columns: Columns, found: Sequence[Any], *, aligned: bool
) -> Iterator[tuple[Series, list[str], list[list[Any]]]]:
    """Of each series its forecasts' times and the rows below `head_of`."""
    named = bool(len(data.series) > 1 or data.series_name)
    for one, forecast in zip(data.series, found, strict=True):
        parts = (
            [forecast.mean, forecast.low, forecast.high]
            if hasattr(forecast, "mean") and hasattr(forecast, "low")
            else [forecast]
        )
        times = times_of(one, columns, len(parts[0]), aligned=aligned) if data.time_name else []
        rows = []
        for step in range(len(parts[0])):
            row: list[Any] = [times[step]] if times else []
            row += [one.name] if named else []
            row += [float(part[step, place]) for place in range(len(columns.targets)) for part in parts]
            rows.append(row)
        yield one, times, rows


def framed(given: Any, data: SeriesData, columns: Columns, found: Sequence[Any]) -> Any | None:
    """The forecasts of a frame or a series of pandas, polars or Arrow as one of the same kind, with its times and the names of its series in their
    own types; None for anything else."""
    library = type(given).__module__.partition(".")[0]
    if library not in FRAMES or library not in sys.modules:
        return None
    head = head_of(data, columns, bounds=hasattr(found[0], "low"))
    rows = [row for _, _, own in rows_of(data, columns, found, aligned=False) for row in own]
    made: dict[str, Any] = {name: [row[place] for row in rows] for place, name in enumerate(head)}
    whole, levels = with_index(given.collect() if hasattr(given, "collect") else given)
    cells = {name: _column(whole, name) for name in (data.time_name, data.series_name) if name}
    if data.series_name:
        own = {str(cell): cell for cell in cells[data.series_name]}
        made[data.series_name] = [own.get(name, name) for name in made[data.series_name]]
    if data.time_name:
        made[data.time_name] = _as_times(made[data.time_name], cells[data.time_name])
    if library == "pandas":
        return _of_pandas(given, whole, made, levels)
    module: Any = sys.modules[library]
    make = module.DataFrame if library == "polars" else module.table
    for name in cells:  # the type that the column had, where the values can have it
        with contextlib.suppress(Exception):
            kind = whole.schema.field(name).type if library == "pyarrow" else whole.schema[name]
            made[name] = (
                module.array(made[name], kind)
                if library == "pyarrow"
                else module.Series(name, made[name], kind)
            )
    return make(made)


def _of_pandas(given: Any, whole: Any, made: dict[str, Any], levels: Sequence[str]) -> Any:
    pandas: Any = sys.modules["pandas"]
    frame = pandas.DataFrame(made)
    for name in frame.columns.intersection(whole.columns):
        if whole[name].dtype != frame[name].dtype:
            with contextlib.suppress(Exception):
                frame[name] = _typed(frame[name], whole[name].dtype)
    kept = [name for name in levels if name in frame.columns]
    if kept:
        frame = frame.set_index(kept)
        frame.index.names = given.index.names if len(kept) == len(levels) else frame.index.names
    if hasattr(given, "columns") or len(frame.columns) != 1:
        return frame
    column = frame.iloc[:, 0]
    column.name = given.name
    return column


def _typed(column: Any, dtype: Any) -> Any:
    """A column of pandas as ``dtype``, where that is a kind of time or of category; numbers stay floats."""
    if getattr(dtype, "kind", "") in "fiu":
        return column
    zone = getattr(dtype, "tz", None)
    return column.dt.tz_convert(zone) if zone is not None else column.astype(dtype)


def _column(frame: Any, name: str) -> list[Any]:
    column = frame[name]
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def _as_times(texts: Sequence[str], cells: Sequence[Any]) -> Sequence[Any]:
    """Times as dates where they were given as such, as numbers where as those; as texts where not, or where they are only counted on."""
    first = cells[0]
    if isinstance(first, int | np.integer) and all(text.lstrip("-").isdecimal() for text in texts):
        return [int(text) for text in texts]
    if hasattr(first, "start_time"):
        with contextlib.suppress(ValueError):
            return [type(first)(text, freq=first.freq) for text in texts]
    found = read_times(texts) if hasattr(first, "isoformat") else None
    if found is None or isinstance(found.stamps[0], float):
        return texts
    return [stamp if hasattr(first, "hour") else stamp.date() for stamp in found.stamps]
