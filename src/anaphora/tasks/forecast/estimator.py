"""``an.Forecaster``: learn the next values of time series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.data.batches.pooled import HeldBatches
from anaphora.data.series import SeriesData
from anaphora.data.series_answers import framed
from anaphora.data.series_arrays import as_given
from anaphora.data.series_readers import SERIES_READER, open_series
from anaphora.data.series_scale import Columns
from anaphora.data.series_windows import WindowBatch, Windows, require_examples
from anaphora.data.split import Split, Way
from anaphora.errors import DataError, SettingsError
from anaphora.kinds.measures.judged import Judged, no_options
from anaphora.models.forecaster_ancestor import Ancestor
from anaphora.models.forecaster_classical import restored
from anaphora.models.forecaster_median import MedianForecaster
from anaphora.probe.trace import Trace
from anaphora.settings import build
from anaphora.tasks.estimator import Estimator
from anaphora.tasks.forecast.build import fresh_forecaster
from anaphora.tasks.forecast.inference.ahead import Floats, Prediction
from anaphora.tasks.forecast.inference.asked import forecast, why_not
from anaphora.tasks.forecast.info import ForecasterSettings, ForecastOptions
from anaphora.tasks.forecast.measures import r_squared, score_windows, windows_judged
from anaphora.tasks.forecast.objective import ForecastObjective, solved
from anaphora.tasks.forecast.probing import probe_forecaster
from anaphora.tasks.guarding import probing, whatever_the_batch
from anaphora.tasks.keywords import ForecasterKeywords, ForecasterModel
from anaphora.tasks.learning import aligned_columns
from anaphora.tasks.looking import no_beam, no_target
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import resolve
from anaphora.tasks.suiting.forecast import (
    report_floor,
    suit_horizon,
    suit_length,
    suit_level,
    suit_preset,
    suit_rolls,
)
from anaphora.tasks.suiting.naive import rival_of
from anaphora.training.objective import Batches, Objective
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.seeding import seed_everything


class Forecaster(Estimator):
    """The next values of time series, from the window before them.

        m = an.Forecaster(model="lstm", horizon=24, window=96)
        m.fit("power.csv", out="runs/power")
        m.predict("power.csv", interval=0.95)

    ``anaphora models forecast`` lists the presets and ``anaphora explain`` the settings.

    >>> wave = np.sin(0.3 * np.arange(80))[:, None]                     # (time, columns)
    >>> m = an.Forecaster("var", window=8, horizon=2).fit(wave)
    >>> m.predict(wave).shape
    (2, 1)
    """

    command = "forecast"
    separate = False
    settings_: ForecasterSettings
    columns_: Columns
    _estimator_type = "regressor"

    def __init__(
        self, model: ForecasterModel | str | None = None, **settings: Unpack[ForecasterKeywords]
    ) -> None:
        super().__init__(model, **settings)

    # ------------------------------------------------------------------ training

    def _join(self, X: Any, y: Any) -> Any:
        """Columns of X and of the targets: an aligned forecaster, which tells y from X step by step."""
        columns, targets = aligned_columns(X, y)
        given = {"horizon": 0, **self._given, "targets": ",".join(targets)}
        if given["horizon"]:
            raise SettingsError(
                [
                    "fit(X, y) tells y from X step by step; set horizon=0, or give X and y in one table to forecast."
                ]
            )
        chosen = resolve(self.task(), given)
        assert isinstance(chosen, ForecasterSettings)
        self.settings_ = chosen
        return columns

    @property
    def n_features_in_(self) -> int:
        """Columns that an aligned forecaster reads, or all columns of the series."""
        if not hasattr(self, "columns_"):
            raise AttributeError("n_features_in_: this Forecaster has not been trained")
        return len(self.columns_.others if not self.settings_.horizon else self.columns_.names)

    def _open(
        self, data: Any, valid: Any | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[SeriesData, SeriesData]:
        suit_rolls(self, data)
        s = self.settings_

        way: Way = "end" if s.window or self._direct else "last series"

        def rule(found: SeriesData, held: bool) -> Split:
            suit_preset(self, found)
            suit_horizon(self, found)
            suit_length(self, found, held)
            return Split(way, s.holdout, least=max(self.settings_.horizon, 1))

        train, dev = SERIES_READER.training(data, valid, rule, spill=spill, **fields)
        s = self.settings_
        for part in (train, dev):
            require_examples(part, self._window, s.horizon)
        if all(np.isnan(one.values[one.begin :]).all() for one in dev.series):
            raise DataError(
                f"{dev.place}: the dev data, the last steps, hold no value; leave empty rows out, or give dev data of your own."
            )
        return train, dev.only(train.columns)

    @property
    def _window(self) -> int:
        # a direct preset looks back as far as it likes; its windows only say from where to forecast
        return max(self.settings_.window, 1) if self._direct else self.settings_.window

    def _learn(self, data: SeriesData) -> None:
        s = self.settings_
        self.columns_ = Columns.learn(
            data,
            targets=s.names("targets"),
            known=s.names("known"),
            output=s.output,
            period=s.period,
            nonnegative=s.nonnegative,
        )
        report_floor(self, data)
        suit_level(self, data)
        if not s.horizon and not self.columns_.others:
            raise DataError(
                "horizon = 0 tells targets from the other columns, but there are none: name some of them in targets."
            )
        if self.columns_.known and s.horizon and not self._direct:
            if not s.window:
                raise DataError(
                    "columns known in advance need a window of fixed length: set window, or leave out known."
                )
            if s.horizon % s.patch:
                raise DataError(
                    f"with columns known in advance horizon = {s.horizon} must be a multiple of patch = {s.patch}."
                )

    def _windows(self, data: SeriesData) -> Windows:
        return Windows(data, self.columns_, window=self._window, horizon=self.settings_.horizon)

    def _symbols(self, data: SeriesData) -> float:
        return float(self._windows(data).lengths.sum())

    def _fresh_model(self) -> nn.Module:
        seed_everything(self.settings_.seed, "model")
        return fresh_forecaster(self.settings_, self.columns_)

    def _objective_and_batches(self, data: SeriesData, dev: SeriesData) -> tuple[Objective, Batches]:
        s, windows = self.settings_, self._windows(data)
        lengths = windows.lengths
        batches: HeldBatches[WindowBatch] = HeldBatches(
            lengths,
            windows.batch,
            batch_tokens=s.batch_tokens,
            max_tokens=int(lengths.max()),
            seed=s.seed,
        )
        return ForecastObjective(s, self.columns_, self._windows(dev), windows), batches

    def _solve(self, data: SeriesData, dev: SeriesData, reporter: Reporter | None) -> dict[str, float]:
        measures, self.model_ = solved(self.settings_, self.columns_, data, dev, self._windows)
        if isinstance(self.model_, MedianForecaster) and reporter is not None and not self.settings_.period:
            reporter.say(self.model_.seasons(self.columns_.targets))
        return measures

    def _advice(self, run: Path) -> str:
        return str(rival_of(self, run) or "")

    def _weights(self) -> dict[str, Tensor]:
        if not isinstance(self.model_, Ancestor):
            return super()._weights()
        return {name: torch.from_numpy(value.copy()) for name, value in self.model_.arrays().items()}

    def _rebuild(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        if self._direct:
            self.model_ = restored(self.columns_, {name: value.numpy() for name, value in tensors.items()})
        else:
            super()._rebuild(tensors, device)

    def _reopen(self, run: RunFolder, recipe: Recipe) -> tuple[SeriesData, SeriesData]:
        train, dev = SERIES_READER.reopen(recipe.data, run.path / "data")
        return train, dev.only(train.columns)

    def _vocabulary(self) -> dict[str, int]:
        columns = self.columns_
        return {"columns": len(columns.names), "targets": len(columns.targets), "known": len(columns.known)}

    # ------------------------------------------------------------------ use

    def predict(
        self,
        data: Any,
        *,
        horizon: int = 0,
        interval: float = 0.0,
        sample: bool = False,
        seed: int = 1,
        details: bool = False,
    ) -> Any:
        """The steps after the end of ``data``: an array (steps, targets) for one series, a list of them for several, and a frame with their names and
        times for a frame of pandas, polars or Arrow.

        ``data`` is whatever ``fit`` takes. With columns known in advance its last ``horizon`` rows hold those alone.
        ``horizon`` beyond the one trained for feeds a network its own forecasts. With ``interval`` (0.95, say) each is
        a `Prediction` with ``mean``, ``low`` and ``high``, or columns ``y_low`` and ``y_high`` of a frame. An aligned forecaster (horizon 0) gives (time, targets),
        and (time,) where ``fit(X, y)`` had one value for each step. ``details`` is ``interval=0.95``.
        """
        interval = interval or (0.95 if details else 0.0)
        opened = self._opened(data, role="test")
        found = self._predicted(opened, horizon, interval, sample, seed)
        frame = framed(data, opened, self.columns_, found) if self.settings_.horizon else None
        return (
            frame
            if frame is not None
            else as_given(found, data, flat=self.columns_.apart and not self.settings_.horizon)
        )

    @overload
    def score(self, data: Any, y: None = None, **fields: str | None) -> dict[str, Any]: ...

    @overload
    def score(self, data: Any, y: Any, **fields: str | None) -> float: ...

    @whatever_the_batch
    def score(
        self, data: Any, y: Any | None = None, *, bad_rows: str | None = None, **fields: str | None
    ) -> dict[str, Any] | float:
        """Forecasts from every place of ``data`` against what came: MSE and MAE in standardised units (deviations of
        each column in training) and in those of the data, by step ahead and by column, beside persistence.

        Counts and 0s and 1s are judged by ``nll``, −log p per step, beside that of constant rates.

        ``score(X, y)`` of a forecaster that was trained by ``fit(X, y)`` is R², as in scikit-learn.
        """
        if y is not None:
            return r_squared(self.predict(data), y)
        self._check_fields(fields)
        if bad_rows is not None:
            raise SettingsError(
                [
                    "bad_rows has no meaning for series: a row left out would shift all that follow; correct it."
                ]
            )
        windows = self._windows(self._scored(data, None, **fields))
        return score_windows(self.model_, windows, self._errors())

    def _open_test(self, data: Any, bad_rows: str | None, **fields: Any) -> SeriesData:
        return self._opened(data, role="test", optional=False, **fields)

    @whatever_the_batch
    def _judge(self, data: SeriesData, options: Mapping[str, Any]) -> Judged:
        no_options(self, options)
        if isinstance(self.model_, nn.Module):
            self.model_.eval()
        return windows_judged(self.model_, self._windows(data))

    @probing
    def probe(
        self, data: Any, target: None = None, *, what: Sequence[str] = (), beam: int | None = None
    ) -> Trace:
        """What happens inside at the end of one series: whatever ``predict`` takes, or lines of numbers as a text."""
        self._check_trained()
        no_target(self, target)
        no_beam(self, beam)
        return probe_forecaster(self, data, what)

    def _inputs(self) -> Literal["text", "numbers", "series", "file"]:
        return "series"

    def _count(self, dev: SeriesData) -> int:
        return len(self._origins(dev))

    def _example(self, dev: SeriesData, number: int) -> tuple[Any, str]:
        """A dev series up to one of the places that can be forecast from; the targets are the steps after it."""
        which, end = self._origins(dev)[number]
        values = np.asarray(dev.only(self.columns_.names).series[which].values)
        columns, horizon = self.columns_, self.settings_.horizon
        after = values[end : end + horizon, columns.places(columns.targets)]
        if columns.known and horizon:  # the steps to come hold these columns alone
            values = values[: end + horizon].copy()
            values[end:, [i for i, name in enumerate(columns.names) if name not in columns.known]] = np.nan
            end += horizon
        return values[:end], "\n".join(" ".join(f"{value:.6g}" for value in row) for row in after)

    def _origins(self, dev: SeriesData) -> list[tuple[int, int]]:
        """Series and step of every place from which its next ``horizon`` steps can be forecast and are known; of aligned
        forecasters the whole series."""
        horizon = self.settings_.horizon
        if not horizon:
            return [(i, len(one)) for i, one in enumerate(dev.series)]
        return [
            (i, end)
            for i, one in enumerate(dev.series)
            for end in range(max(one.begin, self._window, 1), len(one) - horizon + 1)
        ]

    def _opened(self, data: Any, *, role: str, optional: bool = True, **fields: Any) -> SeriesData:
        self._check_trained()
        opened = open_series(
            data, role=role, kept=self.columns_.names, trained=self.recipe_.trained_on, **fields
        )
        may_miss = self.columns_.targets if optional and not self.settings_.horizon else ()
        names = self.columns_.names
        if optional and may_miss and len(opened.columns) == len(self.columns_.others):
            names = self.columns_.others
        opened = opened.called(names, trained=self.columns_.names)
        return opened.only(self.columns_.names, optional=may_miss)

    def _errors(self) -> Floats:
        errors = self.model_.errors
        return errors.double().cpu().numpy() if isinstance(errors, Tensor) else errors

    @whatever_the_batch
    def _predicted(
        self, data: SeriesData, horizon: int, interval: float, sample: bool, seed: int
    ) -> list[Any]:
        asked = {"horizon": horizon, "interval": interval, "sample": sample, "seed": seed}
        options = build(ForecastOptions, asked, owner="predict")
        if problem := why_not(options, self.settings_, self.columns_):
            raise SettingsError([f"{problem}."])
        if isinstance(self.model_, nn.Module):
            self.model_.eval()
        return forecast(self, data, options)


__all__ = ["Forecaster", "Prediction"]
