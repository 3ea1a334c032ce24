"""What a forecaster assumes of its series, and what `train` says when a simple forecast is better."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

import anaphora as an
from anaphora.data.series_readers import SERIES_READER
from anaphora.data.series_scale import Columns
from anaphora.data.sources import report
from anaphora.data.split import Split
from anaphora.errors import DataError
from anaphora.tasks.registry import resolve
from anaphora.tasks.suiting import naive
from anaphora.tasks.suiting.forecast import OF_ROLLS, suit_rolls, wandering

STEPS = np.arange(400.0)
STILL = np.sin(STEPS / 3)
RISING = STEPS / 40 + STILL


def suited(values, **given):
    """The settings after the series have been seen, and what was reported."""
    m, said = an.Forecaster(**{"window": 20, "horizon": 5, **given}), []
    with report.reported(said.append):
        m._learn(m._open(values, None, spill=None)[0])
    held, *said = said
    assert held.startswith("held out the last ")
    return m.settings_, said


@pytest.mark.parametrize("model", ["lstm", "mlp", "conv", "transformer"])
def test_networks_forecast_differences_where_the_level_wanders(model):
    settings, said = suited({"y": RISING}, model=model)
    assert settings.normalize == "last"
    assert len(said) == 1
    assert said[0].startswith("assumed, for series whose level wanders (9")
    assert said[0].endswith("normalize=last")


@pytest.mark.parametrize(
    "given",
    [
        {"values": {"y": STILL}},
        {"normalize": "none"},
        {"normalize": "window"},
        {"window": 0, "values": [RISING, RISING]},
        {"model": "var"},
        {"output": "count", "values": {"y": np.floor(STEPS / 10)}},
    ],
    ids=["still", "given", "otherwise", "whole", "direct", "counts"],
)
def test_else_the_level_stays(given):
    values = given.get("values", {"y": RISING})
    settings, said = suited(values, **{key: value for key, value in given.items() if key != "values"})
    assert settings.normalize == given.get("normalize", "none")
    assert not said


@pytest.mark.parametrize(
    ("steps", "given", "expected"),
    [
        (400, {}, (96, 24)),
        (144, {}, (48, 24)),
        (36, {}, (12, 6)),
        (16, {}, (6, 2)),
        (36, {"horizon": 3}, (15, 3)),
        (36, {"window": 5, "horizon": 3}, (5, 3)),
    ],
)
def test_short_series_have_shorter_windows(steps, given, expected):
    draw = np.random.RandomState(0)
    m = an.Forecaster("lstm", hidden=4, steps=1, **given).fit(
        {"y": draw.standard_normal(steps)}, verbose=False
    )
    assert (m.settings_.window, m.settings_.horizon) == expected


def test_a_rival_that_cannot_be_fitted_is_none(tmp_path):
    """Each of six columns follows from the others: their lags are not determined."""
    base = np.random.RandomState(0).standard_normal(30)
    m = an.Forecaster("lstm", hidden=4, steps=1).fit(
        {name: base * k for k, name in enumerate("abcdef", start=1)}, out=tmp_path / "run", verbose=False
    )
    m._advice(tmp_path / "run")


def test_an_aligned_forecaster_has_no_last_value():
    settings, said = suited({"x": RISING, "y": RISING}, horizon=0, targets="y")
    assert (settings.normalize, said) == ("none", [])


def shares(series, window=4):
    train, _ = SERIES_READER.training(series, series, Split("end", 0.1))
    return wandering(train, Columns.learn(train, targets=(), known=(), output="continuous", period=1), window)


def test_the_share_of_the_variance_between_parts():
    """Four parts of which two lie at −1 and two at 1; and the same values in another order."""
    assert shares({"y": np.repeat([-1.0, -1.0, 1.0, 1.0], 4)}) == pytest.approx(1.0)
    assert shares({"y": np.tile([-1.0, 1.0], 8)}) == pytest.approx(0.0)
    gaps = np.repeat([-1.0, -1.0, 1.0, 1.0], 4)
    gaps[[1, 9]] = np.nan
    assert shares({"y": gaps}) == pytest.approx(1.0)


def trained(tmp_path, values, **given):
    sizes = {"model": "lstm", "window": 20, "horizon": 5, "hidden": 4, "steps": 2, "valid_every": 2}
    m = an.Forecaster(**{**sizes, **given}).fit(values, out=tmp_path / "run", verbose=False)
    return m, naive.rival_of(m, tmp_path / "run")


def test_a_simple_forecast_that_is_better_is_named(tmp_path):
    m, found = trained(tmp_path, {"y": RISING}, normalize="none")
    assert found is not None
    assert found.value == pytest.approx(m.result_.metrics["mse"])
    assert found.name == "var"
    assert found.mse < 0.1 * found.value
    assert "--model" not in str(found)
    assert m._advice(tmp_path / "run") == str(found)
    assert str(naive.Rival("seasonal", 0.5, 1.0)).startswith(
        "repeating the last season has mse 0.5 on the same dev data, where this run has 1:"
    )


@pytest.mark.parametrize("given", [{"model": "var"}, {"window": 0}, {"horizon": 0, "targets": "y"}], ids=str)
def test_what_cannot_be_compared_is_not(tmp_path, given):
    columns = {"x": STILL, "y": RISING} if "targets" in given else [RISING, RISING]
    small = {"hidden": 4, "steps": 2} if "model" not in given else {}
    base = {"window": 20, "horizon": 5, **small, **given}
    m = an.Forecaster(**base).fit(columns, out=tmp_path / "run", verbose=False)
    assert naive.rival_of(m, tmp_path / "run") is None


def test_a_rival_that_is_hardly_better_is_not_named(tmp_path, monkeypatch):
    monkeypatch.setattr(naive, "CLEARLY", 0.0)
    assert trained(tmp_path, {"y": RISING}, normalize="none")[1] is None


def rolls(path):
    """Pieces of two chords each."""
    pieces = [[[60, 64, 67], [62, 65, 69]] * 4] * 6
    path.write_text(json.dumps({"train": pieces, "valid": pieces[:2], "test": pieces[:2]}))
    return path


def test_piano_rolls_are_read_as_wholes_of_0s_and_1s_and_that_is_reported(tmp_path):
    said, path = [], rolls(tmp_path / "pieces.json")
    m = an.Forecaster("gru", hidden=4, steps=2, device="cpu")
    with report.reported(said.append):
        m.fit(path, out=tmp_path / "run")
    s = an.load(tmp_path / "run").settings_
    assert (s.output, s.horizon, s.window) == ("binary", 1, 0)
    assert s == resolve(m.task(), {"model": "gru", "hidden": 4, "steps": 2, "device": "cpu", **OF_ROLLS})
    assert "assumed, for piano rolls: output=binary, horizon=1, window=0" in said


def test_piano_rolls_leave_what_was_given_and_presets_with_a_window(tmp_path):
    path = rolls(tmp_path / "pieces.json")
    mine = an.Forecaster("gru", horizon=2, output="binary")
    suit_rolls(mine, path)
    assert (mine.settings_.horizon, mine.settings_.window) == (2, 0)
    linear = an.Forecaster("linear")
    before = linear.settings_
    suit_rolls(linear, path)
    assert linear.settings_ == before
    other = an.Forecaster("gru")
    suit_rolls(other, tmp_path / "table.csv")
    assert other.settings_.window > 0


def months(count, width=1):
    """A table of so many months with a season; (name, values) of each column."""
    t = np.arange(count)
    random = np.random.default_rng(0)
    wave = 50 + 0.3 * t + 8 * np.sin(2 * np.pi * t / 12)
    return {f"sold{i}": wave * (i + 1) + random.normal(0, 1, count) for i in range(width)}


def written(path, values, stamps):
    rows = ["date," + ",".join(values)]
    rows += [
        f"{stamp}," + ",".join(f"{v:.3f}" for v in row)
        for stamp, row in zip(stamps, zip(*values.values(), strict=True), strict=True)
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


def settled(data, **given):
    m, said = an.Forecaster(**given), []
    with report.reported(said.append):
        m._learn(m._open(data, None, spill=None)[0])
    return m.settings_, [line for line in said if line.startswith("assumed")]


def test_few_data_are_forecast_by_the_median(tmp_path):
    stamps = [f"{2010 + i // 12}-{i % 12 + 1:02}" for i in range(96)]
    settings, said = settled(written(tmp_path / "sold.csv", months(96), stamps))
    assert (settings.model, settings.horizon) == ("median", 12)
    assert said == [
        "assumed, for 96 steps, which are few for a network: model=median",
        "assumed, for monthly rows: horizon=12",
    ]


@pytest.mark.parametrize(
    ("given", "data"),
    [
        ({"model": "lstm"}, months(96)),
        ({"steps": 10}, months(96)),
        ({"hidden": 8}, months(96)),
        ({"window": 10}, months(96)),
        ({"seed": 2}, months(96)),
        ({"output": "count"}, {"n": np.arange(96.0) % 5}),
        ({"targets": "sold0"}, months(96, width=2)),
        ({"horizon": 0, "targets": "sold0"}, months(96, width=2)),
        ({}, {"on": np.arange(96.0) % 2}),
        ({}, {"y": np.sin(np.arange(5001.0))}),
        ({}, "waves"),
    ],
    ids=[
        "named",
        "steps",
        "size",
        "window",
        "seed",
        "counts",
        "inputs",
        "aligned",
        "binary",
        "many",
        "corpus",
    ],
)
def test_else_a_network_is_trained(given, data):
    with (
        pytest.warns(UserWarning, match="all targets are 0 or 1")
        if "on" in data
        else contextlib.nullcontext()
    ):
        settings, said = settled(data, **given)
    assert settings.model == "lstm"
    assert not any("median" in line for line in said)


def test_what_was_assumed_for_few_data_is_not_kept_for_many():
    m = an.Forecaster()
    m._open(months(96), None, spill=None)
    assert m.settings_.model == "median"
    m._open({"y": np.sin(np.arange(5001.0))}, None, spill=None)
    assert m.settings_ == an.Forecaster().settings_


def test_known_columns_and_targets_that_leave_nothing_out_are_for_the_median():
    settings, _ = settled(
        {"sold": np.arange(96.0) % 12, "price": np.arange(96.0) % 7}, targets="sold", known="price"
    )
    assert settings.model == "median"


@pytest.mark.parametrize(
    ("stamps", "rows", "horizon"),
    [("{0}", 90, 6), ("{0}", 30, 5), ("{1}-Q{2}", 90, 8)],
    ids=["years", "few years", "quarters"],
)
def test_how_far_to_look_ahead(tmp_path, stamps, rows, horizon):
    times = [stamps.format(1900 + i, 1900 + i // 4, i % 4 + 1) for i in range(rows)]
    path = written(tmp_path / "y.csv", months(rows), times)
    assert settled(path)[0].horizon == horizon
    assert settled(path, horizon=9)[0].horizon == 9


def test_the_median_learns_from_the_dev_data_after_they_have_judged_it(tmp_path):
    """The errors are those before; what is forecast follows the last steps, which are dev data."""
    y = np.concatenate([np.full(57, 10.0), np.full(3, 20.0)]) + np.random.default_rng(0).normal(0, 0.1, 60)
    m = an.Forecaster(horizon=5).fit({"y": y}, out=tmp_path / "run", verbose=False)
    given = an.Forecaster(model="median", horizon=5).fit({"y": y[:54]}, valid={"y": y}, verbose=False)
    assert m.settings_.model == given.settings_.model == "median"
    assert m.result_.metrics["mse"] > 1
    assert (
        m.model_.arrays()["0.plain.smoothing"].tolist() != given.model_.arrays()["0.plain.smoothing"].tolist()
    )
    again = an.load(tmp_path / "run")
    assert np.array_equal(again.predict({"y": y}), m.predict({"y": y}))


def test_intervals_of_few_dev_windows_rest_on_the_training_series_as_well():
    """One dev window would give the error of one step; of a walk, errors grow with the steps ahead."""
    y = np.cumsum(np.random.default_rng(3).normal(size=120))
    m = an.Forecaster(model="median", horizon=10, holdout=10, period=1).fit({"y": y}, verbose=False)
    found = m.predict({"y": y}, interval=0.8)
    width = (found.high - found.low)[:, 0]
    assert width[-3:].mean() > 1.5 * width[:3].mean()
    errors = m.model_.errors
    assert (errors[90] > errors[10]).all()


def test_dev_data_without_a_value_are_refused():
    y = np.concatenate([np.sin(np.arange(60.0)), np.full(12, np.nan)])
    with pytest.raises(DataError, match="the last steps, hold no value"):
        an.Forecaster(horizon=5).fit({"y": y}, verbose=False)


def test_the_median_is_named_where_it_is_better_than_a_network(tmp_path):
    m = an.Forecaster(model="lstm", hidden=4, steps=2, horizon=6, window=12)
    m.fit(months(96), out=tmp_path / "run", verbose=False)
    found = naive.rival_of(m, tmp_path / "run")
    assert found.name == "median"
    assert str(found).endswith("for these data it is the better choice")


def test_a_fitted_preset_is_compared_with_what_learns_nothing(tmp_path):
    """The last values of a series that jumps in its dev part are better than an autoregression around the mean."""
    y = np.concatenate([np.random.default_rng(0).normal(0, 1, 200), np.full(30, 50.0)])
    m = an.Forecaster(model="var", horizon=5, window=10).fit({"y": y}, out=tmp_path / "run", verbose=False)
    found = naive.rival_of(m, tmp_path / "run")
    assert found.name == "persistence"
    assert str(found).endswith("for these data it is better; try --model median, linear or kalman")
    few = an.Forecaster(model="var", horizon=5, window=10, holdout=8).fit(
        {"y": y}, out=tmp_path / "few", verbose=False
    )
    assert naive.rival_of(few, tmp_path / "few") is None


def test_a_handful_of_steps_is_refused(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("year,value\n" + "".join(f"{2000 + i},{i}\n" for i in range(6)))
    with pytest.raises(DataError, match=r"few.csv: the longest series has 5 training steps, .* at least 6"):
        an.Forecaster().fit(path, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with path.open("a") as file:
        file.write("2006,6\n")
    assert an.Forecaster().fit(path).predict(path).shape == (1, 1)


def test_targets_that_are_kept_above_0_are_reported_where_they_come_near_it():
    near, far = 1 + STEPS % 7, 1000 + STEPS % 7
    _, said = suited({"sold": near, "far": far}, model="linear")
    assert "assumed, for sold, never below 0 in training: nonnegative=true" in said
    for given in ({"sold": near - 5}, {"far": far}):
        assert not any("nonnegative" in line for line in suited(given, model="linear")[1])
    for choice in (True, False):
        said = suited({"sold": near}, model="linear", nonnegative=choice)[1]
        assert not any("nonnegative" in line for line in said)
    many = {f"c{i}": near for i in range(5)}
    assert any("c0, c1, c2 and 2 more, never below 0" in line for line in suited(many, model="linear")[1])


def test_whether_forecasts_may_be_below_0_says_nothing_about_networks():
    assert settled(months(96), nonnegative=False)[0].model == "median"
