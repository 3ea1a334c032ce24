"""A forecaster out of its graph: gaps are filled, values scaled and intervals made as in training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.series import SeriesData
from anaphora.data.series_ahead import ROWS, Chain, along, floors, go_ahead, in_units, interval_of, paths_of
from anaphora.data.series_answers import framed
from anaphora.data.series_arrays import as_given
from anaphora.data.series_readers import open_series, read_as
from anaphora.data.series_scale import Columns
from anaphora.data.series_windows import WindowBatch, Windows
from anaphora.errors import DataError, SettingsError
from anaphora.inference.session import check_finite
from anaphora.runtime.folder import Exported, OnnxGraph

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Forecasts in the units of the data, (steps, targets); ``low`` … ``high`` holds a value with probability ``level``."""

    mean: Floats
    low: Floats
    high: Floats
    level: float


class Forecaster:
    """`predict` of an exported `an.Forecaster`."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset, facts = exported.preset, exported.facts
        try:
            self.columns = Columns.from_json(exported.text("learnt.json"))
            self._window, self._horizon = int(facts["window"]), int(facts["horizon"])
            self._errors = np.array(facts["errors"], dtype=np.float64)
            self._read = (
                read_as(facts["read"])
                if "read" in facts
                else {"kind": "files", "time_field": facts["time_field"]}
            )
            self._chain = _chain(facts.get("chain"), len(self.columns.targets))
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._session = OnnxGraph(exported, threads=threads)

    def predict(
        self, data: Any, *, horizon: int = 0, interval: float = 0.0, sample: bool = False, seed: int = 1
    ) -> Any:
        """The steps after the end of ``data``: an array (steps, targets) for one series, a list of them for a list; with
        ``interval`` (0.95, say) each is a `Prediction`. What ``data`` may be, and what missing values mean, is as for
        `an.Forecaster.predict`."""
        self._check(horizon, interval, sample)
        opened = self._opened(data)
        found = self._predicted(opened, horizon, interval, np.random.default_rng(seed) if sample else None)
        frame = framed(data, opened, self.columns, found) if self._horizon else None
        return (
            frame
            if frame is not None
            else as_given(found, data, flat=self.columns.apart and not self._horizon)
        )

    def _predicted(
        self, data: SeriesData, horizon: int, interval: float, draw: np.random.Generator | None
    ) -> list[Any]:
        if not self._horizon:
            means = along(self._outputs, data, self.columns, window=self._window, chain=self._chain)
        else:
            asked = horizon or self._horizon
            paths = paths_of(data, self.columns, least=self._window, horizon=asked)
            means = go_ahead(
                self._run,
                paths,
                self.columns,
                window=self._window,
                trained=self._horizon,
                horizon=asked,
                draw=draw,
                chain=self._chain,
            )
        check_finite(means, "series")
        columns = self.columns
        found = zip(means, floors(data, columns, aligned=not self._horizon), strict=True)
        if interval:
            return [
                Prediction(*interval_of(mean, self._errors, interval, columns, floor), interval)
                for mean, floor in found
            ]
        return [in_units(mean, columns, floor) for mean, floor in found]

    def _run(self, batch: WindowBatch) -> Floats:
        given = {"x": batch.x, "future": batch.future}
        if batch.lengths is not None:
            given["lengths"] = batch.lengths.astype(np.int64)
        kept = {
            name: np.asarray(given[name], dtype=self._session.described.types[name])
            for name in self._session.described.inputs
        }
        found: Floats = self._session(**kept)["outputs"].astype(np.float64)
        return found

    def _outputs(self, windows: Windows) -> Iterator[tuple[Floats, WindowBatch]]:
        for begin in range(0, len(windows), ROWS):
            batch = windows.batch(range(begin, min(begin + ROWS, len(windows))))
            yield self._run(batch), batch

    def _opened(self, data: Any) -> SeriesData:
        opened = open_series(data, role="test", kept=self.columns.names, trained=self._read)
        columns = self.columns
        may_miss = columns.targets if not self._horizon else ()
        names = columns.names
        if may_miss and len(opened.columns) == len(columns.others):
            names = columns.others
        opened = opened.called(names, trained=columns.names)
        return opened.only(columns.names, optional=may_miss)

    def _check(self, horizon: int, interval: float, sample: bool) -> None:
        output, problem = self.columns.output, None
        if horizon < 0 or not 0 <= interval < 1:
            problem = (
                f"horizon = {horizon} and interval = {interval:g} must be from 0 on, and interval below 1"
            )
        elif horizon and not self._horizon:
            problem = f"horizon = {horizon} has no meaning for an aligned forecaster; leave it out"
        elif interval and horizon > self._horizon:
            problem = f"interval is known for the {self._horizon} steps trained for only; leave out horizon or interval"
        elif interval and output == "binary":
            problem = "interval has no meaning for 0s and 1s: the forecasts are probabilities already"
        elif interval and sample:
            problem = "interval and sample exclude each other; leave one out"
        elif sample and output == "continuous":
            problem = "sample draws counts and 0s and 1s; continuous targets have an interval instead"
        if problem:
            raise SettingsError([f"{problem}."])


def _chain(given: Any, targets: int) -> Chain | None:
    """The weights that an export keeps of joint targets; a ValueError where they do not fit."""
    if given is None:
        return None
    weights = np.array(given, dtype=np.float64)
    if weights.ndim != 3 or weights.shape[:2] != (2, targets) or not np.isfinite(weights).all():
        raise ValueError(f"chain has the shape {weights.shape}, but there are {targets} targets")
    return Chain(*weights)
