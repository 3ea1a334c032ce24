"""Intervals of forecasters: the quantiles of few errors against brute force, what share of values they hold, and that they end at 0."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import anaphora as an
from anaphora.cli import main
from anaphora.data.series_ahead import go_ahead, in_units
from anaphora.data.series_scale import Columns
from anaphora.tasks.forecast.inference.intervals import (
    ENOUGH,
    Errors,
    apart,
    conformal,
    error_quantiles,
    rising,
    student,
    widening,
)

# ------------------------------------------------------------------ quantiles


@pytest.mark.parametrize("n", [1, 2, 7, 19, 20, 99])
def test_the_next_of_n_numbers_is_below_their_quantile_as_often_as_it_says(n):
    """Exchangeable numbers: each of n + 1 in turn is the one to come. Where no number is large enough, the largest stands in."""
    numbers = np.random.default_rng(n).permutation(n + 1).astype(float)
    rest = np.stack([np.delete(numbers, i) for i in range(n + 1)], axis=1)  # (n, n + 1)
    inside = (numbers <= conformal(rest)).sum(axis=1)
    for percent in range(101):
        wanted = -(-percent * (n + 1) // 100)  # ⌈(n + 1) q⌉ of n + 1 in whole numbers
        assert inside[percent] == min(max(wanted, 1), n)


def test_a_missing_error_is_left_out_and_no_error_is_0():
    sizes = np.array([[3.0, np.nan], [np.nan, np.nan], [1.0, np.nan]])
    found = conformal(sizes)
    assert found[[0, 33, 34, 66, 67, 100], 0].tolist() == [1, 1, 3, 3, 3, 3]  # the 1st of 2 up to a third
    assert not found[:, 1].any()
    assert conformal(np.zeros((0, 2))).shape == (101, 2)


def test_quantiles_of_students_distribution():
    """Tables of t, two-sided; and the area under its density, summed."""
    levels = np.array([0.5, 0.9, 0.95, 0.99])
    np.testing.assert_allclose(student(levels, 2), [0.816497, 2.919986, 4.302653, 9.924843], atol=1e-6)
    np.testing.assert_allclose(student(levels, 10), [0.699812, 1.812461, 2.228139, 3.169273], atol=1e-6)
    edge = student(np.array([0.8]), 6)[0]
    t = np.arange(-2000, 2000, 1e-3)
    density = (1 + t**2 / 6) ** -3.5
    assert density[np.abs(t) <= edge].sum() / density.sum() == pytest.approx(0.8, abs=1e-3)


def test_intervals_of_few_windows_are_wider_and_of_many_not():
    few, many = widening(1), widening(500)
    assert few[95] == pytest.approx(4.302653 / 1.959964, rel=1e-5)
    assert (np.diff(few) >= -1e-12).all()
    assert few[100] == few[99]
    assert many.max() < 1.003


@pytest.mark.parametrize("seed", range(5))
def test_scales_that_never_fall_are_the_nearest_ones(seed):
    """Brute force: of all ways to cut five steps into blocks of one value each, the one with the least weighted squares."""
    random = np.random.default_rng(seed)
    values, weights = random.random((5, 1)), random.integers(1, 9, (5, 1))
    best, least = None, np.inf
    for cuts in itertools.product([False, True], repeat=4):
        block = np.concatenate([[0], np.cumsum(cuts)])
        means = [
            np.average(values[block == b, 0], weights=weights[block == b, 0]) for b in range(block[-1] + 1)
        ]
        squares = float((weights[:, 0] * (values[:, 0] - np.array(means)[block]) ** 2).sum())
        if (np.diff(means) >= 0).all() and squares < least:
            best, least = np.array(means)[block], squares
    np.testing.assert_allclose(rising(values, weights)[:, 0], best)


def test_a_step_without_an_error_has_the_scale_of_its_neighbour():
    assert rising(np.array([[0.0], [2.0], [0.0], [3.0]]), np.array([[0], [1], [0], [2]]))[:, 0].tolist() == [
        2,
        2,
        2,
        3,
    ]


@pytest.mark.parametrize("horizon", [1, 3, 5])
def test_how_many_windows_overlap_no_other(horizon):
    random = np.random.default_rng(horizon)
    places = np.stack([random.integers(0, 2, 9), random.integers(0, 20, 9)], axis=1)
    most = max(
        len(chosen)
        for size in range(1, 10)
        for chosen in itertools.combinations(places.tolist(), size)
        if all(a[0] != b[0] or abs(a[1] - b[1]) >= horizon for a, b in itertools.combinations(chosen, 2))
    )
    assert apart(places, horizon) == most


def test_errors_of_training_count_as_much_as_those_of_the_dev_data():
    """Two steps whose training errors are 1 and 2, and one dev window with three times as much: the dev errors set the level."""
    before = Errors(np.tile([[[1.0], [2.0]]], (40, 1, 1)), 20)
    dev = Errors(np.array([[[3.0], [6.0]]]), 1)
    found = error_quantiles(dev, before)
    np.testing.assert_allclose(found[:, 1], 2 * found[:, 0])
    np.testing.assert_allclose(found[95, 0, 0], 3 * widening(21)[95])
    lower = Errors(dev.sizes / 100, 1)  # luck does not make intervals narrower
    assert error_quantiles(lower, before)[95, 0, 0] > 0.9
    known_by_heart = Errors(np.zeros((40, 2, 1)), 20)  # a model without an error in training says nothing
    np.testing.assert_allclose(error_quantiles(dev, known_by_heart)[50, :, 0] / widening(21)[50], [3, 6])


def test_many_dev_windows_speak_for_themselves():
    sizes = np.abs(np.random.default_rng(0).normal(size=(50, 3, 2)))
    found = error_quantiles(Errors(sizes, ENOUGH), Errors(sizes * 9, 50))
    assert (found == conformal(sizes)).all()


def test_forecasts_without_an_error_have_intervals_without_a_width():
    found = error_quantiles(Errors(np.zeros((1, 3, 1)), 1), Errors(np.zeros((9, 3, 1)), 3))
    assert found.shape == (101, 3, 1)
    assert not found.any()
    assert not error_quantiles(Errors(np.full((1, 3, 1), np.nan), 1)).any()


# ------------------------------------------------------------------ what they hold


def noisy(seed, steps):
    """A season of 4 and an autoregression with known noise."""
    random = np.random.default_rng(seed)
    y = np.zeros(steps)
    for t in range(1, steps):
        y[t] = 0.6 * y[t - 1] + random.normal()
    return y + 3 * np.sin(np.arange(steps) * np.pi / 2)


@pytest.mark.parametrize(
    ("model", "series", "more"),
    [
        ("var", 20, {}),
        ("median", 8, {"period": 4}),
        ("kalman", 10, {"structure": "level", "period": 4, "iterations": 10}),
        ("linear", 8, {"window": 8, "steps": 20, "threads": 1}),
    ],
)
def test_one_dev_window_of_known_noise_is_enough_for_intervals_that_hold(model, series, more):
    """50 steps to learn from, of which the last four are the one dev window. What is drawn is fixed, so that the shares are."""
    held = {0.5: [], 0.95: []}
    for seed in range(series):
        y = noisy(seed, 54)
        m = an.Forecaster(model=model, horizon=4, holdout=4, **more)
        m.fit({"y": y[:50]}, verbose=False)
        for level, inside in held.items():
            found = m.predict({"y": y[:50]}, interval=level)
            inside.append(((found.low <= y[50:, None]) & (y[50:, None] <= found.high)).mean())
    assert 0.3 < np.mean(held[0.5]) < 0.8
    assert 0.84 < np.mean(held[0.95]) <= 1
    assert (np.diff(found.high - found.low, axis=0) >= -1e-9).all()  # further ahead never narrower


# ------------------------------------------------------------------ values that are never negative

PRESETS = {
    "median": {},
    "var": {},
    "kalman": {"structure": "trend", "iterations": 5},
    "linear": {"window": 12, "steps": 30},
}


def sold(steps=60, seed=2):
    """Counts that fall to few a step: a line through them soon reaches 0."""
    return np.random.default_rng(seed).poisson(np.linspace(30, 0.5, steps)).astype(float)


@pytest.mark.parametrize("model", PRESETS)
def test_what_was_never_negative_is_not_forecast_below_0(model):
    y = sold()
    m = an.Forecaster(model=model, horizon=8, **PRESETS[model]).fit({"y": y}, verbose=False)
    found = m.predict({"y": y}, interval=0.95)
    assert found.low.min() == 0
    assert found.mean.min() >= 0
    assert (found.high >= found.mean).all()
    assert np.array_equal(m.predict({"y": y}), found.mean)
    free = an.Forecaster(model=model, horizon=8, nonnegative=False, **PRESETS[model]).fit(
        {"y": y}, verbose=False
    )
    assert free.predict({"y": y}, interval=0.95).low.min() < 0
    # of a series that has been below 0 it may be
    below = y - 40
    assert m.predict({"y": below}, interval=0.95).mean.max() < 0


def test_values_that_were_negative_are_left_alone():
    table = {"y": sold() - 5, "z": sold(seed=3)}
    m = an.Forecaster("var", horizon=8).fit(table, verbose=False)
    assert m.columns_.nonnegative == (False, True)
    low = m.predict(table, interval=0.95).low
    assert low[:, 0].min() < 0 == low[:, 1].min()


def test_forecasts_that_are_fed_back_are_not_below_0_either():
    """A network that always forecasts −9 deviations: what it goes on from is 0, unless the series has been below."""
    columns = Columns(("y",), ("y",), (), (5.0,), (1.0,), (False,), (5.0,), 1, "continuous", (True,))
    for first, fed in ((3.0, 0.0), (-3.0, -4.0)):
        values = np.array([[first], [2.0], *[[np.nan]] * 4])
        found = go_ahead(
            lambda batch: np.full((1, 1, 2, 1), -9.0), [(values, 2)], columns, window=2, trained=2, horizon=4
        )
        assert values[2:4, 0].tolist() == [fed, fed]
        assert in_units(found[0], columns, columns.floor(values[:2]))[:, 0].tolist() == [fed] * 4


@pytest.mark.parametrize("model", ["var", "linear", "lstm"])
def test_score_judges_the_forecasts_that_predict_gives(model):
    y = sold(80)
    more = {"window": 12, "steps": 20, "threads": 1} if model != "var" else {"window": 12}
    m = an.Forecaster(model=model, horizon=4, **more).fit({"y": y}, verbose=False)
    test = sold(40)[::-1].copy()
    ends = range(12, 37)
    found = [m.predict({"y": test[:end]}, interval=0.95) for end in ends]
    truth = np.stack([test[end : end + 4, None] for end in ends])
    away = np.stack([one.mean for one in found]) - truth
    inside = np.stack(
        [(one.low <= what) & (what <= one.high) for one, what in zip(found, truth, strict=True)]
    )
    scores = m.score({"y": test})
    assert scores["mse_original"] == pytest.approx(float((away**2).mean()), rel=1e-4)
    assert scores["coverage_95"] == pytest.approx(100 * inside.mean())


def test_an_older_run_answers_as_it_did():
    """Its `learnt.json` does not say which targets were never negative."""
    y = sold()
    m = an.Forecaster("var", horizon=8).fit({"y": y}, verbose=False)
    new = m.predict({"y": y}, interval=0.95)
    learnt = json.loads(m.columns_.to_json())
    assert learnt.pop("nonnegative") == [True]
    m.columns_ = Columns.from_json(json.dumps(learnt))
    old = m.predict({"y": y}, interval=0.95)
    assert old.low.min() < 0
    assert np.array_equal(np.maximum(old.low, 0), new.low)
    for wrong in ([True, False], [1], "yes"):
        with pytest.raises(ValueError, match="nonnegative"):
            Columns.from_json(json.dumps({**learnt, "nonnegative": wrong}))


def test_the_command_and_the_view_give_the_same_intervals(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = sold()
    with open("sold.csv", "w") as file:
        file.write("t,y\n" + "".join(f"{t},{value:g}\n" for t, value in enumerate(y)))
    m = an.Forecaster("median", horizon=8).fit("sold.csv", out="run", verbose=False)
    found = m.predict("sold.csv", interval=0.95)
    assert main.run(["predict", "run", "sold.csv", "--set", "interval=0.95", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    trace = m.probe(Path("sold.csv"))
    for name, key, array in (
        ("mean", "forecast", "forecast"),
        ("low", "low", "forecast_low"),
        ("high", "high", "forecast_high"),
    ):
        np.testing.assert_allclose(record[key], getattr(found, name), rtol=1e-6)
        np.testing.assert_allclose(trace.array(array, "step", "output"), getattr(found, name))
    assert np.min(record["low"]) == 0
