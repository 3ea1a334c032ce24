"""The median of eleven simple forecasts of each target, behind the interface of the forecasters that are no networks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anaphora.data.series_scale import Columns, infer_period
from anaphora.data.series_windows import fill_forward
from anaphora.models.classical.simple import Differences, Levels, Smoothing, Windowed, seasons_fit
from anaphora.models.forecaster_ancestor import Ancestor, Floats, Places

Simple = Smoothing | Differences | Levels | Windowed
SCALES = ("plain", "log")
LONGEST = 5000
"""Steps at the end of each series that are learned from."""
TINY = 1e-9
SOME = 50
"""Series that are learned from, evenly spread over all: few numbers are estimated."""


class MedianForecaster(Ancestor):
    """For each target the median of what these forecast from its own past: exponential smoothing as Akaike's criterion chooses it, the same with a
    damped slope, autoregressions of differences from the last season and of values around their mean, and one linear map of a window; each for the
    values and, where all are above 0 and ``nonnegative`` holds, for their logarithms; and the last season itself. The median of simple forecasts is seldom far off (Petropoulos & Svetunkov 2020).

    What columns known in advance explain of the differences from the last season, by least squares, is taken out first and put back. Other
    columns are not looked at. Where neither a training value nor one of the history is below 0, no forecast is.
    """

    def __init__(
        self,
        columns: Columns,
        members: Sequence[Mapping[str, Simple]],
        effects: Floats,
        signed: Floats,
        periods: Sequence[int],
    ):
        self.members, self.effects, self._signed, self.periods = list(members), effects, signed, list(periods)
        self._own, self._known = columns.places(columns.targets), columns.places(columns.known)
        self._mean, self._scale = np.array(columns.mean)[self._own], np.array(columns.scale)[self._own]
        if not len(self.members) == len(effects) == len(signed) == len(periods) == len(
            self._own
        ) or effects.shape[1:] != (len(self._known),):
            raise ValueError("the targets are others")

    @classmethod
    def fit(
        cls,
        series: Sequence[Floats],
        columns: Columns,
        *,
        horizon: int,
        period: int,
        nonnegative: bool = True,
    ) -> MedianForecaster:
        """To standardised ``series`` (time, columns) with seasons of ``period`` steps, 1 for none; 0 = found for each target. The map of a window
        gives ``horizon`` steps. Unless ``nonnegative``, forecasts may be below 0 whatever the values are."""
        own, known = columns.places(columns.targets), columns.places(columns.known)
        chosen = [series[i] for i in np.unique(np.linspace(0, len(series) - 1, SOME).astype(int))]
        chosen = [values[-LONGEST:] for values in chosen]
        x = [fill_forward(values[:, known]) for values in chosen]
        members, effects, signed = [], np.zeros((len(own), len(known))), np.zeros(len(own))
        periods = [
            period or infer_period([values[:, [place]] for values in chosen], longer=True) for place in own
        ]
        for number, (place, season) in enumerate(zip(own, periods, strict=True)):
            y = [values[:, place] * columns.scale[place] + columns.mean[place] for values in chosen]
            signed[number] = float(
                not nonnegative or any(_below(one, columns.scale[place]).any() for one in y)
            )
            if known:
                effects[number] = _effects(y, x, season)
                y = [one - inputs @ effects[number] for one, inputs in zip(y, x, strict=True)]
            y = [one[np.argmax(~np.isnan(one)) :] for one in y if not np.isnan(one).all()]
            found = _fitted(y, season, horizon, "plain") if y else {}
            if nonnegative and y and min(float(np.nanmin(one)) for one in y) > 0:
                found |= _fitted([np.log(one) for one in y], season, horizon, "log")
            members.append(found)
        return cls(columns, members, effects, signed, periods)

    def forecast(self, values: Floats, ends: Places, horizon: int) -> Floats:
        x = fill_forward(values[:, self._known])
        parts = []
        for number, place in enumerate(self._own):
            told = x @ self.effects[number]
            y = values[:, place] * self._scale[number] + self._mean[number] - told
            found = _median(self.members[number], y, ends, horizon, self.periods[number])
            if self._known:
                found = found + told[ends[:, None] + np.arange(horizon)]
            if not self._signed[number]:
                negative = np.maximum.accumulate(_below(y + told, self._scale[number]))[
                    np.maximum(ends - 1, 0)
                ]
                found = np.where(negative[:, None], found, np.maximum(found, 0.0))
            parts.append((found - self._mean[number]) / self._scale[number])
        # before the first value nothing is known but the mean
        return np.asarray(np.nan_to_num(np.stack(parts, axis=2), nan=0.0))

    def seasons(self, targets: Sequence[str]) -> str:
        """Which seasons were found, in words."""
        if len(set(self.periods)) == 1:
            period = self.periods[0]
            return f"found a season of {period:,} steps" if period > 1 else "found no season"
        listed = [
            f"{name} {period if period > 1 else 'none'}"
            for name, period in zip(targets, self.periods, strict=True)
        ]
        return f"found seasons, in steps: {', '.join(listed[:12])}{' …' * (len(listed) > 12)}"

    def arrays(self) -> dict[str, Floats]:
        named = {
            f"{number}.{name}": model.table if isinstance(model, Windowed) else model.numbers()
            for number, found in enumerate(self.members)
            for name, model in found.items()
        }
        periods = np.array(self.periods, dtype=np.float64)
        return {
            **named,
            "effects": self.effects,
            "signed": self._signed,
            "periods": periods,
            "errors": self.errors,
        }

    @classmethod
    def of_arrays(cls, columns: Columns, arrays: Mapping[str, Floats]) -> MedianForecaster:
        """The model whose ``arrays`` these are; a KeyError or ValueError where they are something else's."""
        members: list[dict[str, Simple]] = [{} for _ in columns.targets]
        for name, array in arrays.items():
            if name in ("effects", "signed", "periods", "errors"):
                continue
            number, scale, kind = name.split(".")
            if scale not in SCALES:
                raise ValueError(f"{name}: neither of {', '.join(SCALES)}")
            members[int(number)][f"{scale}.{kind}"] = _KINDS[kind](array)
        periods = [int(period) for period in arrays["periods"].tolist()]
        if min(periods) < 1:
            raise ValueError("a period is less than 1")
        return cls(columns, members, arrays["effects"], arrays["signed"], periods)


def _below(y: Floats, scale: float) -> NDArray[np.bool_]:
    """Which of ``y`` are below 0, by more than the rounding of standardised values."""
    return np.asarray(y < -TINY * scale)


def _windowed(table: Floats) -> Windowed:
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError("window: not a table of weights")
    return Windowed(table)


_KINDS: dict[str, Callable[[Floats], Simple]] = {
    "smoothing": Smoothing.of_numbers,
    "damped": Smoothing.of_numbers,
    "differences": Differences.of_numbers,
    "levels": Levels.of_numbers,
    "window": _windowed,
}


def _fitted(series: Sequence[Floats], period: int, horizon: int, scale: str) -> dict[str, Simple]:
    """The simple models of ``series`` (time,) each, which begin with a value."""
    season = period if seasons_fit(series, period) else 1
    whole = [filled(one, season) for one in series]
    found: dict[str, Simple] = {
        f"{scale}.smoothing": Smoothing.chosen(series, period=season),
        f"{scale}.damped": Smoothing.fit(series, period=season, slope="damped"),
        f"{scale}.differences": Differences.fit(whole, period=season),
        f"{scale}.levels": Levels.fit(whole, period=season),
    }
    window = Windowed.fit(whole, period=season, horizon=horizon)
    return found if window is None else found | {f"{scale}.window": window}


def _median(members: Mapping[str, Simple], y: Floats, ends: Places, horizon: int, period: int) -> Floats:
    """(ends, horizon); NaN where nothing has been seen."""
    found = [_last_season(filled(y, period), ends, horizon, period)]
    for scale in SCALES:
        used = {name: model for name, model in members.items() if name.startswith(scale)}
        if not used:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            seen = np.log(np.where(y > 0, y, np.nan)) if scale == "log" else y
        for name, model in used.items():
            gaps = name.endswith(("smoothing", "damped"))
            ahead = model.ahead(seen if gaps else filled(seen, period), ends, horizon)
            found.append(_unlogged(ahead, seen, y, ends) if scale == "log" else ahead)
    empty = np.isnan(y).cumprod()[np.maximum(ends - 1, 0)].astype(bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nothing but NaN
        middle = np.nanmedian(np.stack(found), axis=0)
    middle[empty] = np.nan
    return np.asarray(middle)


def _unlogged(ahead: Floats, seen: Floats, y: Floats, ends: Places) -> Floats:
    """Forecasts of logarithms as values: at most as far above the highest value seen as that is above the lowest, and NaN where a value seen was
    not above 0."""
    low, high, least = (np.fmin.accumulate(seen), np.fmax.accumulate(seen), np.fmin.accumulate(y))
    last = np.maximum(ends - 1, 0)
    top = np.nan_to_num(2 * high[last] - low[last])[:, None]
    bad = ~(np.nan_to_num(least[last], nan=1.0) > 0)
    return np.where(bad[:, None], np.nan, np.exp(np.minimum(ahead, top)))


def _last_season(y: Floats, ends: Places, horizon: int, period: int) -> Floats:
    steps = np.arange(horizon)
    place = np.where(ends[:, None] >= period, ends[:, None] - period + steps % period, ends[:, None] - 1)
    return np.asarray(y[np.maximum(place, 0)])


def filled(y: Floats, period: int) -> Floats:
    """Missing values of ``y`` (time,) replaced by that of a season before, or of the step before; before the first value by that."""
    gaps = np.flatnonzero(np.isnan(y))
    if not len(gaps):
        return y
    real = np.flatnonzero(~np.isnan(y))
    if not len(real):
        return np.zeros_like(y)
    y = y.copy()
    y[: real[0]] = y[real[0]]
    for t in gaps[gaps > real[0]]:
        y[t] = y[t - period] if t - period >= real[0] else y[t - 1]
    return y


def _effects(series: Sequence[Floats], inputs: Sequence[Floats], period: int) -> Floats:
    """What a step more of each of ``inputs`` (time, known) adds to y, by least squares of differences from the last season."""
    rows, wanted = [], []
    for y, x in zip(series, inputs, strict=True):
        lag = period if len(y) > 3 * period else 1
        change = y[lag:] - y[:-lag]
        real = ~np.isnan(change)
        rows.append((x[lag:] - x[:-lag])[real])
        wanted.append(change[real])
    design, target = np.concatenate(rows), np.concatenate(wanted)
    ridge = 1e-6 * max(1, len(design)) * np.eye(design.shape[1])
    return np.asarray(np.linalg.solve(design.T @ design + ridge, design.T @ target))
