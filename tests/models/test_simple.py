"""Exponential smoothing, autoregressions and the map of a window, against loops, hand-made series and numbers of statsmodels."""

from __future__ import annotations

import numpy as np
import pytest

from anaphora.models.classical.simple import (
    SLOPES,
    Differences,
    Levels,
    Smoothing,
    Windowed,
    first_states,
    minimised,
)
from anaphora.models.classical.smoothing import smooth

QUARTERS = np.array(
    [
        23.3,
        18.7,
        18.1,
        23.7,
        24.5,
        21.8,
        18.2,
        26.6,
        27.2,
        23.0,
        21.3,
        26.7,
        30.1,
        25.7,
        22.5,
        29.8,
        30.2,
        28.6,
        25.2,
        31.0,
        33.3,
        28.7,
        28.1,
        33.7,
    ]
)


def states_after(y, gains, level, slope, season):
    """Σ e², level, slope and season after all steps."""
    levels, slopes, seasons = np.empty(1), np.empty(1), np.empty((1, len(season)))
    total = smooth(
        y, np.array(gains), level, slope, np.array(season), np.array([len(y)]), levels, slopes, seasons
    )
    return total, levels[0], slopes[0], seasons[0]


def test_smoothing_is_that_of_statsmodels():
    """ETSModel(error="add", trend="add", damped_trend=True, seasonal="add", seasonal_periods=4) of statsmodels 0.15 with the same first states;
    its smoothing_trend is αβ."""
    total, level, slope, season = states_after(
        QUARTERS, (0.3, 0.2, 0.9, 0.1), 20.0, 0.5, [3.0, -1.0, -4.0, 2.0]
    )
    ahead = level + slope * np.cumsum(0.9 ** np.arange(1, 7)) + season[(24 + np.arange(6)) % 4]
    told = [
        34.67559696957266,
        30.922576818304968,
        28.38150235294937,
        34.51963432426251,
        35.73087333369209,
        31.872325546012455,
    ]
    assert total == pytest.approx(24.711267113089047, rel=1e-12)
    assert ahead == pytest.approx(told, rel=1e-12)


def test_the_least_squares_of_smoothing_are_those_of_statsmodels():
    """Sums of squares that ExponentialSmoothing of statsmodels 0.15 reaches from the same first states."""
    for slope, least in (("none", 35.06125285042753), ("straight", 11.046250162217799)):
        model = Smoothing.fit([QUARTERS], period=4, slope=slope)
        total = states_after(QUARTERS, model.gains, *first_states(QUARTERS, 4, slope))[0]
        assert total == pytest.approx(least, rel=1e-5)


def test_a_missing_value_is_forecast_and_changes_nothing():
    gap = np.array([10.0, 12.0, np.nan, 14.0])
    total, level, slope, _ = states_after(gap, (0.5, 0.5, 1.0, 0.0), 9.0, 1.0, [0.0])
    # 10 is met; 12 is 1 more than 11, which makes 11.5 and 1.25; the gap makes 12.75 and 1.25; 14 is met
    assert (total, level, slope) == pytest.approx((1.0, 14.0, 1.25))


def test_the_criterion_chooses_what_a_series_has():
    random, t = np.random.default_rng(0), np.arange(96)
    noise = random.normal(0, 1, 96)
    season = 10 * np.sin(2 * np.pi * t / 12)
    assert Smoothing.chosen([100 + noise], period=12).period == 1
    assert Smoothing.chosen([100 + noise], period=12).slope == "none"
    found = Smoothing.chosen([100 + 2 * t + season + noise], period=12)
    assert found.period == 12
    assert found.slope != "none"
    assert Smoothing.chosen([season[:20]], period=12).period == 1  # fewer than two seasons and a few steps


def test_first_states_of_a_line_with_a_season():
    t = np.arange(12.0)
    level, slope, season = first_states(5 + 2 * t + np.tile([1.0, -1.0, 3.0, -3.0], 3), 4, "straight")
    assert level == pytest.approx(3.0)
    assert slope == pytest.approx(2.0)
    assert season == pytest.approx([1.0, -1.0, 3.0, -3.0])
    assert first_states(np.full(4, np.nan), 2, "none")[0] == 0.0


@pytest.mark.parametrize("slope", SLOPES)
def test_forecasts_from_many_places_are_those_from_each(slope):
    y = QUARTERS + np.random.default_rng(1).normal(size=24)
    model = Smoothing.fit([y], period=4, slope=slope)
    ends = np.array([20, 3, 17, 24])
    together = model.ahead(y, ends, 5)
    for row, end in zip(together, ends, strict=True):
        assert row == pytest.approx(model.ahead(y[:end], np.array([end]), 5)[0])


def test_an_autoregression_of_differences_is_found():
    random, d = np.random.default_rng(2), [0.0]
    for _ in range(600):
        d.append(0.7 * d[-1] + random.normal())
    y = np.cumsum(d)
    model = Differences.fit([y], period=1)
    assert model.weights[0] == pytest.approx(0.7, abs=0.08)
    model = Differences(2, 1.0, (0.5,))
    # y = 1, 2, 4, 6: the last difference over two steps is 4, so the next ones are 1 + 2 and 1 + 1.5
    assert model.ahead(np.array([1.0, 2.0, 4.0, 6.0]), np.array([4]), 2).tolist() == [[4 + 3, 6 + 2.5]]
    assert np.isnan(model.ahead(np.array([1.0, 2.0, 4.0, 6.0]), np.array([2]), 2)).all()
    assert Differences.fit([np.array([1.0, 2.0])], period=4) == Differences(4, 0.0, ())


def test_values_return_to_their_mean():
    random, z = np.random.default_rng(3), [0.0]
    for _ in range(600):
        z.append(0.6 * z[-1] + random.normal())
    model = Levels.fit([50 + np.array(z)], period=1)
    assert model.weights[0] == pytest.approx(0.6, abs=0.08)
    model = Levels((1, 3), (0.5, 0.25))
    # around the mean of 4: −1, −2, 3; then 1.5 − 0.25, then half of that and a quarter of −2
    assert model.ahead(np.array([3.0, 2.0, 7.0]), np.array([3]), 2).tolist() == [[4 + 1.25, 4 + 0.125]]


def test_a_map_of_a_window_is_found_and_goes_on_from_itself():
    y = np.sin(np.arange(200.0))
    model = Windowed.fit([y], period=1, horizon=4)
    assert model is not None
    found = model.ahead(y, np.array([150, 190]), 9)
    assert found[0] == pytest.approx(y[150:159], abs=1e-3)
    assert found[1] == pytest.approx(y[190:199], abs=1e-3)
    assert Windowed.fit([y[:12]], period=1, horizon=4) is None


@pytest.mark.parametrize("kind", [Differences, Levels, Smoothing])
def test_a_model_is_its_numbers(kind):
    fit = Smoothing.chosen if kind is Smoothing else kind.fit
    model = fit([QUARTERS], period=4)
    again = kind.of_numbers(model.numbers())
    ends = np.array([24])
    assert again.ahead(QUARTERS, ends, 6).tolist() == model.ahead(QUARTERS, ends, 6).tolist()


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (Smoothing, [4, 7, 0.1, 0.1, 1, 0.1]),
        (Smoothing, [0, 1, 0.1, 0.1, 1, 0.1]),
        (Smoothing, [4, 1, 9, 0.1, 1, 0.1]),
        (Smoothing, [4]),
        (Differences, [0, 1]),
        (Differences, [4]),
        (Levels, [0, 0.5]),
        (Levels, [1, 2, 0.5]),
    ],
)
def test_numbers_of_something_else_are_refused(kind, numbers):
    with pytest.raises(ValueError):
        kind.of_numbers(np.array(numbers, dtype=np.float64))


def test_several_series_count_alike_whatever_their_units():
    random = np.random.default_rng(4)
    a, b = (np.cumsum(random.normal(size=80)) for _ in range(2))
    for fit in (Differences.fit, Levels.fit):
        small, large = fit([a, b], period=1), fit([a, 1000 * b], period=1)
        assert small.weights == pytest.approx(large.weights)
    first, second = (Smoothing.fit([a, k * b], period=1, slope="none") for k in (1, 1000))
    assert first.gains == pytest.approx(second.gains, abs=1e-3)


def test_the_simplex_finds_the_bottom_of_a_bent_valley():
    def valley(x):
        return float((1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2)

    place, value = minimised(valley, np.array([-1.2, 1.0]), most=500, tolerance=1e-12)
    assert place == pytest.approx([1.0, 1.0], abs=1e-3)
    assert value < 1e-6
    place, _ = minimised(lambda x: float("nan") if x[0] < 0 else float(x[0] - 1) ** 2, np.array([3.0]))
    assert place == pytest.approx([1.0], abs=1e-2)
