"""The median of simple forecasts: what it looks at, and what it never does."""

from __future__ import annotations

import numpy as np
import pytest

from anaphora.data.series import Series, SeriesData
from anaphora.data.series_scale import Columns
from anaphora.models.forecaster_classical import restored
from anaphora.models.forecaster_median import MedianForecaster, filled

MONTHS = np.arange(72)
SALES = (100 + 3 * MONTHS) * (1 + 0.3 * np.sin(2 * np.pi * MONTHS / 12))
"""A season that grows with the level."""


def fitted(*series, known=(), horizon=12, period=0):
    """The model of series {column: values}, and these standardised."""
    names = tuple(series[0])
    tables = [np.stack([one[name] for name in names], axis=1).astype(float) for one in series]
    data = SeriesData(names, tuple(Series(str(i), table) for i, table in enumerate(tables)), {})
    columns = Columns.learn(data, targets=(), known=known, output="continuous", period=period)
    standard = [columns.standardised(table) for table in tables]
    model = MedianForecaster.fit(standard, columns, horizon=horizon, period=period)
    model.errors = np.zeros((101, horizon, len(columns.targets)))
    return model, columns, standard


def ahead(model, columns, values, end, horizon=12):
    return columns.restored(model.forecast(values, np.array([end]), horizon))[0]


def test_a_season_that_grows_goes_on_growing():
    model, columns, (values,) = fitted({"y": SALES[:60]})
    assert model.periods == [12]
    away = np.abs(ahead(model, columns, values, 60)[:, 0] - SALES[60:])
    assert away.mean() < 0.02 * SALES[60:].mean()


def test_the_forecast_is_the_median_of_eleven():
    model, columns, (values,) = fitted({"y": SALES[:60]})
    assert len(model.members[0]) == 10
    kinds = {"smoothing", "damped", "differences", "levels", "window"}
    assert {name.partition(".")[2] for name in model.members[0]} == kinds
    y, ends = SALES[:60], np.array([60])
    found = [y[48:]]
    for name, member in model.members[0].items():
        log = name.startswith("log")
        one = member.ahead(np.log(y) if log else y, ends, 12)[0]
        found.append(np.exp(one) if log else one)
    assert ahead(model, columns, values, 60)[:, 0] == pytest.approx(np.median(found, axis=0))


def test_later_steps_are_not_looked_at():
    random = np.random.default_rng(0)
    y = 50 + np.cumsum(random.normal(size=90))
    y[[10, 40, 41, 70]] = np.nan
    model, _, (values,) = fitted({"y": y})
    ends = np.array([5, 12, 41, 60])
    whole = model.forecast(values, ends, 6)
    for row, end in zip(whole, ends, strict=True):
        changed = values.copy()
        changed[end:] = 1e6
        assert model.forecast(changed, np.array([end]), 6)[0] == pytest.approx(row)


def test_what_is_never_negative_is_not_forecast_to_be():
    falling = np.maximum(0.0, 60.0 - 2 * np.arange(40.0))
    model, columns, (values,) = fitted({"y": falling}, horizon=20)
    assert ahead(model, columns, values, 40, 20).min() >= 0
    model, columns, (values,) = fitted({"y": 60.0 - 2 * np.arange(40.0)}, horizon=20)
    assert ahead(model, columns, values, 40, 20).min() < -30


def test_a_history_with_a_zero_has_no_logarithms():
    model, columns, _ = fitted({"y": SALES[:60]})
    zero = SALES[:60].copy()
    zero[30] = 0.0
    found = ahead(model, columns, columns.standardised(zero[:, None]), 60)
    assert np.isfinite(found).all()


def test_known_columns_explain_what_they_can():
    random = np.random.default_rng(1)
    open_ = (random.random(132) < 0.7).astype(float)
    sold = 20 * open_ + 0.1 * np.arange(132) + random.normal(0, 0.5, 132)
    model, columns, _ = fitted({"sold": sold[:120], "open": open_[:120]}, known=("open",))
    longer = np.stack([np.full(132, np.nan), open_], axis=1)
    longer[:120, 0] = sold[:120]
    found = ahead(model, columns, columns.standardised(longer), 120)[:, 0]
    assert np.abs(found - sold[120:]).mean() < 2


def test_series_of_other_units_are_forecast_alike():
    model, columns, (small, large) = fitted({"y": SALES[:60]}, {"y": 50 * SALES[:60]})
    one, other = (ahead(model, columns, values, 60) for values in (small, large))
    assert other == pytest.approx(50 * one, rel=1e-6)


def test_a_series_without_any_value_of_a_target_and_one_of_every_other():
    none, half = np.full(40, np.nan), np.where(np.arange(40) % 2, np.nan, np.arange(40.0))
    one, two = {"a": none, "b": half}, {"a": SALES[:40], "b": half}
    model, columns, (first, second) = fitted(one, two, horizon=4)
    assert ahead(model, columns, second, 40, 4)[:, 1] == pytest.approx([40, 41, 42, 43], abs=1.5)
    assert ahead(model, columns, first, 40, 4)[:, 0] == pytest.approx(columns.mean[0])


def test_each_target_has_its_own_season():
    random = np.random.default_rng(2)
    week = np.tile([5.0, 1, 2, 1, 0, 8, 9], 20) + random.normal(0, 0.3, 140)
    model, columns, _ = fitted({"sold": week, "price": np.cumsum(random.normal(size=140))})
    assert model.periods == [7, 1]
    assert model.seasons(columns.targets) == "found seasons, in steps: sold 7, price none"
    assert fitted({"sold": week}, period=14)[0].periods == [14]
    assert fitted({"sold": week})[0].seasons(["sold"]) == "found a season of 7 steps"


def test_a_model_is_restored_from_its_arrays():
    model, columns, (values,) = fitted({"y": SALES[:60], "z": -SALES[:60]})
    again = restored(columns, model.arrays())
    ends = np.array([30, 60])
    assert isinstance(again, MedianForecaster)
    assert (again.forecast(values, ends, 12) == model.forecast(values, ends, 12)).all()


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("0.log.window", np.zeros(3)),
        ("0.root.window", np.zeros((2, 2))),
        ("0.log.trend", np.zeros(3)),
        ("5.log.damped", np.array([1, 0, 0.1, 0.1, 1, 0.1])),
        ("effects", np.zeros((2, 1))),
        ("periods", np.zeros(1)),
        ("periods", np.ones(2)),
        ("signed", np.zeros(0)),
    ],
)
def test_arrays_of_something_else_are_refused(name, array):
    model, columns, _ = fitted({"y": SALES[:60]})
    with pytest.raises((ValueError, LookupError)):
        restored(columns, {**model.arrays(), name: array})


def test_gaps_are_filled_from_the_past():
    y = np.array([np.nan, 1.0, 2.0, np.nan, np.nan, 5.0, np.nan])
    assert filled(y, 2).tolist() == [1.0, 1.0, 2.0, 1.0, 2.0, 5.0, 2.0]
    assert filled(y, 1).tolist() == [1.0, 1.0, 2.0, 2.0, 2.0, 5.0, 5.0]
    assert filled(np.full(3, np.nan), 1).tolist() == [0.0, 0.0, 0.0]


def test_a_count_of_0_is_not_below_0_by_rounding():
    """Of 50 series of counts, one whose standardised 0 comes back as a number just below 0."""
    drawn = [np.random.default_rng(seed).poisson(1.3, 30).astype(float) for seed in range(50)]
    counts = next(y for y in drawn if ((y - y.mean()) / y.std() * y.std() + y.mean() < 0).any())
    falling = counts + np.linspace(9, 0, 30).round() * (counts > 0)
    for y in (counts, falling):
        model, columns, (values,) = fitted({"y": y}, period=1)
        assert model.arrays()["signed"].tolist() == [0]
        assert ahead(model, columns, values, 30).min() >= -1e-9


def test_a_series_that_has_been_below_0_may_be_forecast_there():
    falling = np.linspace(60, 1, 60)
    model, columns, _ = fitted({"y": falling}, period=1)
    assert ahead(model, columns, columns.standardised(falling[:, None]), 60).min() == pytest.approx(
        0, abs=1e-9
    )
    below = columns.standardised(falling[:, None] - 30)
    assert ahead(model, columns, below, 60).max() < -20
    assert ahead(model, columns, below, 30)[-1, 0] == pytest.approx(0, abs=1e-9)  # not yet there
