"""The forecaster in use: every preset fits, saves, loads and scores; intervals hold what they promise."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from forecast_tiny import NETWORKS, PRESETS, settings, tiny, waves

import anaphora as an
from anaphora.errors import DataError, SettingsError
from sweeps import sweep


@pytest.fixture(scope="module")
def of_preset():
    return functools.cache(lambda model: tiny(model).fit(waves()))


@pytest.mark.parametrize("model", PRESETS)
def test_alone_and_among_64_the_forecasts_are_the_same(of_preset, model):
    forecaster = of_preset(model)
    series = [waves(12 + 3 * number, seed=number) for number in range(64)]
    together = forecaster.predict(series)
    for one, batched in list(zip(series, together, strict=True))[:: sweep(7, 1)]:
        np.testing.assert_allclose(forecaster.predict(one), batched, atol=1e-5)
    assert np.std([told[0, 0] for told in together]) > 0.01  # it does look at its input


def test_a_list_of_rows_is_one_series():
    rows = [{"a": float(a), "b": float(b)} for a, b in waves(40, 5)]
    forecaster = tiny("var").fit(rows * 5)
    assert forecaster.predict(rows).shape == forecaster.predict(waves(40, 5)).shape == (4, 2)


@pytest.mark.parametrize("model", PRESETS)
def test_saved_and_loaded_it_says_the_same(of_preset, model, tmp_path):
    forecaster = of_preset(model)
    forecaster.save(tmp_path / "kept")
    again = an.load(tmp_path / "kept", device="cpu")
    told, twice = (one.predict(waves(40, 5), interval=0.9) for one in (forecaster, again))
    np.testing.assert_array_equal(told.mean, twice.mean)
    np.testing.assert_array_equal(told.high, twice.high)
    assert told.mean.shape == (4, 2)
    assert (told.low < told.mean).all()
    assert again.score(waves(80, 5)) == forecaster.score(waves(80, 5))


@pytest.mark.parametrize("model", PRESETS)
def test_params_make_the_same_estimator_again(model):
    first = an.Forecaster(**settings(model))
    assert an.Forecaster(**first.get_params()).settings_ == first.settings_


@pytest.mark.parametrize("model", PRESETS)
def test_beyond_its_horizon_it_goes_on_from_its_own_forecasts(of_preset, model):
    forecaster, history = of_preset(model), waves(60, 3)
    far = forecaster.predict(history, horizon=10)
    near = forecaster.predict(history)
    assert far.shape == (10, 2)
    np.testing.assert_allclose(far[:4], near, atol=1e-5)
    if model in NETWORKS:  # as if one had written down the first forecasts and asked again
        again = forecaster.predict(np.concatenate([history, near]))
        np.testing.assert_allclose(far[4:8], again, atol=1e-5)
    np.testing.assert_allclose(forecaster.predict(history, horizon=2), near[:2], atol=1e-5)


def test_scores_by_hand():
    """A map that repeats the last value is persistence itself, in every number that is given."""
    forecaster = tiny("linear", steps=1, normalize="last").fit(waves())
    for weight in forecaster.model_.parameters():
        weight.data.zero_()
    test = waves(60, 9)
    scores = forecaster.score(test)
    assert scores["mse"] == pytest.approx(scores["persistence_mse"], rel=1e-6)
    assert scores["mae"] == pytest.approx(scores["persistence_mae"], rel=1e-6)
    away = np.stack([test[t : t + 4] - test[t - 1] for t in range(12, 57)])
    assert scores["windows"] == len(away)
    assert scores["mse_original"] == pytest.approx((away**2).mean(), rel=1e-5)
    assert scores["mae_original"] == pytest.approx(np.abs(away).mean(), rel=1e-5)
    scale = np.array(forecaster.columns_.scale)
    assert scores["mse"] == pytest.approx(((away / scale) ** 2).mean(), rel=1e-5)
    assert scores["per_horizon"]["2 ahead"]["mse"] == pytest.approx(
        ((away / scale)[:, 1] ** 2).mean(), rel=1e-5
    )
    assert scores["per_column"]["x2"]["mae_original"] == pytest.approx(np.abs(away[..., 1]).mean(), rel=1e-5)
    season = np.stack([test[t : t + 4] - test[t - 6 : t - 2] for t in range(12, 57)]) / scale
    assert scores["seasonal_mse"] == pytest.approx((season**2).mean(), rel=1e-5)


@pytest.mark.parametrize("model", ["var", "kalman", "linear", "gru"])
def test_intervals_of_95_percent_hold_95_percent(model):
    """An autoregression, whose best forecasts have errors of one distribution at all times."""
    random = np.random.default_rng(4)
    y = np.zeros(12_000)
    for t in range(1, len(y)):
        y[t] = 0.8 * y[t - 1] + random.normal()
    more = {"structure": "dynamic", "states": 1} if model == "kalman" else {}
    more |= {"valid_examples": 3000} | ({"steps": 60, "batch_tokens": 2000} if model in NETWORKS else {})
    forecaster = tiny(model, period=1, **more).fit(y[:5000], valid=y[5000:8500])
    assert forecaster.score(y[8500:])["coverage_95"] == pytest.approx(95, abs=2)
    told = forecaster.predict(y[:8000], interval=0.95)
    if model == "var":  # its errors are known: variances 1, 1 + 0.8², … per step
        deviations = np.sqrt(np.cumsum(0.8 ** (2 * np.arange(4))))
        np.testing.assert_allclose((told.high - told.mean)[:, 0], 1.96 * deviations, rtol=0.06)


def test_training_beats_repeating_the_last_value():
    for model in ("var", "kalman", "linear", "gru"):
        more = {"steps": 150} if model in NETWORKS else {"structure": "auto"} if model == "kalman" else {}
        scores = tiny(model, **more).fit(waves(400)).score(waves(200, 8))
        assert scores["mse"] < 0.5 * scores["persistence_mse"], model


@pytest.mark.parametrize("model", ["var", "kalman", "linear", "gru"])
def test_the_driven_spring_is_forecast_far_better_than_by_its_last_position(model):
    more = {"structure": "dynamic", "iterations": 20} if model == "kalman" else {}
    more |= {"steps": 120, "batch_tokens": 1500} if model in NETWORKS else {}
    forecaster = tiny(model, window=24, horizon=8, period=1, **more).fit("waves")
    assert forecaster.columns_.known == ("force",)
    scores = forecaster.score("waves")
    assert scores["mse"] < 0.35 * scores["persistence_mse"]


def test_gaps_are_learnt_around():
    """A tenth of all values is missing, also in the last step: forecasts are as good as with all of them, nearly."""
    values = waves(500)
    values[np.random.default_rng(3).random(values.shape) < 0.1] = np.nan
    test = waves(200, 8)
    test[np.random.default_rng(4).random(test.shape) < 0.1] = np.nan
    for model in ("var", "kalman", "gru"):
        more = {"steps": 200} if model == "gru" else {}
        if model == "kalman":
            more = {"structure": "dynamic", "states": 8, "iterations": 30}
        forecaster = tiny(model, **more).fit(values)
        assert forecaster.columns_.gaps == (True, True)
        scores = forecaster.score(test)
        assert scores["mse"] < 0.4 * scores["persistence_mse"], model
        test[-1] = np.nan
        assert np.isfinite(forecaster.predict(test)).all()


@pytest.mark.parametrize("model", ["var", "kalman", "linear", "lstm", "transformer"])
def test_what_is_known_in_advance_is_used(model):
    """y is what x is in the same step; x itself is noise, so without its future nothing could be said."""
    random = np.random.default_rng(0)
    x = random.normal(size=700)
    data = {"y": x + 0.1 * random.normal(size=700), "x": x}
    more = {"steps": 200, "lr": 0.03, "batch_tokens": 800} if model in NETWORKS else {}
    forecaster = tiny(model, targets="y", known="x", **more).fit(data)
    scores = forecaster.score(data)
    assert scores["mse"] < 0.25 * scores["persistence_mse"]
    ahead = {"y": [*data["y"][:50], *[np.nan] * 4], "x": [*data["x"][:50], 2.0, -2.0, 2.0, -2.0]}
    told = forecaster.predict(ahead)
    assert told.shape == (4, 1)
    assert (np.sign(told[:, 0]) == [1, -1, 1, -1]).all()
    with pytest.raises(
        DataError, match="x must be known for the 4 steps to forecast; give 4 rows after the last"
    ):
        forecaster.predict({"y": data["y"][:50], "x": data["x"][:50]})


@pytest.mark.parametrize("model", ["rnn", "gru", "conv", "transformer"])
def test_aligned_every_step_is_told_from_the_inputs_up_to_it(model):
    """y is the sum of x now and one step before."""
    random = np.random.default_rng(0)
    x = random.normal(size=600)
    y = x + np.concatenate([[0.0], x[:-1]])
    forecaster = tiny(model, horizon=0, targets="y", steps=250, hidden=16).fit({"x": x, "y": y})
    scores = forecaster.score({"x": x, "y": y})
    assert scores["mse"] < 0.2 * scores["mean_mse"]
    told = forecaster.predict({"x": x[:31], "y": y[:31]})
    assert told.shape == (31, 1)
    np.testing.assert_array_equal(told, forecaster.predict({"x": x[:31], "y": np.full(31, np.nan)}))
    later = x[:31].copy()
    later[20:] += 1.0
    np.testing.assert_allclose(forecaster.predict({"x": later, "y": y[:31]})[:20], told[:20], atol=1e-6)


def rolls(count, seed=0):
    """Pieces in which the sounding note goes up by one of eight keys each step, some with a second voice."""
    random = np.random.default_rng(seed)
    pieces = []
    for _ in range(count):
        steps = np.arange(random.integers(8, 20)) + random.integers(8)
        roll = np.eye(8)[steps % 8]
        pieces.append(np.concatenate([roll, (random.random((len(steps), 1)) < 0.5).astype(float)], 1))
    return pieces


def test_music_is_learnt_by_the_log_probability_of_each_step():
    forecaster = tiny("gru", horizon=1, window=0, output="binary", steps=300, hidden=16).fit(rolls(60))
    scores = forecaster.score(rolls(20, 5))
    # eight keys are certain from the second step on; the second voice costs ln 2, whatever is learned
    assert np.log(2) < scores["nll"] < 1.1
    assert scores["frequency_nll"] == pytest.approx(
        8 * -(np.log(1 / 8) / 8 + np.log(7 / 8) * 7 / 8) + np.log(2), abs=0.1
    )
    assert scores["steps"] == sum(len(piece) - 1 for piece in rolls(20, 5))
    piece = rolls(1, 7)[0]
    chances = forecaster.predict(piece)
    assert chances.shape == (1, 9)
    assert chances[0, :8].argmax() == (piece[-1, :8].argmax() + 1) % 8
    several = rolls(64, 9)
    for one, batched in zip(several, forecaster.predict(several), strict=True):
        np.testing.assert_allclose(forecaster.predict(one), batched, atol=1e-5)  # of many lengths
    drawn = forecaster.predict(piece, horizon=16, sample=True, seed=3)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    np.testing.assert_array_equal(drawn, forecaster.predict(piece, horizon=16, sample=True, seed=3))
    assert not np.array_equal(drawn, forecaster.predict(piece, horizon=16, sample=True, seed=4))
    with pytest.raises(SettingsError, match="the forecasts are probabilities already"):
        forecaster.predict(piece, interval=0.9)


def test_counts_are_learnt_as_rates():
    random = np.random.default_rng(0)
    rates = np.where(np.arange(900) % 6 < 3, 1.0, 9.0)
    counts = random.poisson(rates).astype(float)
    forecaster = tiny("gru", output="count", steps=400, hidden=16, batch_tokens=800).fit(counts)
    scores = forecaster.score(counts)
    best = np.mean(
        rates - counts * np.log(rates) + np.array([sum(np.log(np.arange(1, c + 1))) for c in counts])
    )
    assert scores["nll"] == pytest.approx(best, rel=0.1)
    assert scores["nll"] < scores["frequency_nll"] - 0.5
    told = forecaster.predict(counts[:600], interval=0.9)
    assert (told.low >= 0).all()
    np.testing.assert_allclose(told.mean[:3, 0], 1.0, atol=0.6)


def test_several_series_and_one_give_lists_and_arrays(of_preset, tmp_path):
    forecaster = of_preset("var")
    assert forecaster.predict(waves(30)).shape == (4, 2)
    assert len(forecaster.predict([waves(30)])) == 1
    assert tiny("var").fit(waves()[:, 0]).predict(waves(30)[:, 0].tolist()).shape == (4, 1)
    assert [one.shape for one in forecaster.predict([waves(30), waves(40)])] == [(4, 2), (4, 2)]
    assert len(forecaster.predict(np.stack([waves(30), waves(30, 1)]))) == 2
    np.save(tmp_path / "x.npy", waves(30))
    np.testing.assert_allclose(forecaster.predict(str(tmp_path / "x.npy")), forecaster.predict(waves(30)))


def test_targets_of_zeros_and_ones_get_advice_for_them():
    rolls = np.random.RandomState(0).randint(0, 2, (400, 3))
    with pytest.warns(
        UserWarning, match=r'all targets are 0 or 1; output="binary" forecasts their probabilities'
    ):
        an.Forecaster("var").fit(rolls)


@pytest.mark.parametrize("model", ["var", "gru"])
def test_a_series_without_a_single_value_is_not_forecast(of_preset, model):
    forecaster = of_preset(model)
    history = waves(40)
    with pytest.raises(
        DataError, match=r"series 1: every value of .* is missing, so there is nothing to forecast from"
    ):
        forecaster.predict(np.full_like(history, np.nan))
    history[-5:] = np.nan
    assert np.isfinite(forecaster.predict(history)).all()


def test_a_table_is_read_by_its_names_and_an_array_by_its_places(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.sin(np.arange(120.0)), "b": 100 + np.arange(120.0)})
    turned = frame[["b", "a"]]
    forecaster = an.Forecaster("var", window=8, horizon=2).fit(frame)
    wanted = forecaster.predict(frame)
    np.testing.assert_allclose(forecaster.predict(turned), wanted)
    np.testing.assert_allclose(forecaster.predict(frame.to_numpy()), wanted)
    assert forecaster.score(turned)["mse"] == pytest.approx(forecaster.score(frame)["mse"])
    with pytest.raises(DataError, match="has no column a, which the model was trained with; it has c, b"):
        forecaster.predict(frame.rename(columns={"a": "c"}))
    with pytest.raises(DataError, match="an array has 3 columns, and the model was trained with 2"):
        forecaster.predict(np.ones((40, 3)))
    nameless = an.Forecaster("var", window=8, horizon=2).fit(frame.to_numpy())
    np.testing.assert_allclose(nameless.predict(frame), wanted)  # trained on an array, it knows places alone


def test_fit_of_a_table_and_its_targets_reads_by_names(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    names = ["x2", "y", "x1"]  # such as those of arrays, in another order
    frame = pandas.DataFrame(rng.normal(size=(200, 3)), columns=names)
    y = 3 * frame["x2"] - frame["x1"]
    few = {"window": 4, "hidden": 8, "steps": 150, "lr": 1e-2, "warmup": 0, "device": "cpu", "ema": 0.0}
    forecaster = an.Forecaster("mlp", **few).fit(frame, y)
    wanted = forecaster.predict(frame)
    assert wanted.shape == (200,)
    turned = frame[sorted(names)].assign(more=1.0)
    np.testing.assert_allclose(forecaster.predict(turned), wanted)
    np.testing.assert_allclose(forecaster.predict(frame[sorted(names)]), wanted)
    np.testing.assert_allclose(forecaster.predict(frame.to_numpy()), wanted)  # which has places alone
    assert forecaster.score(turned, y) == pytest.approx(forecaster.score(frame, y))
    with pytest.raises(DataError, match=r"has no column x2, which the model was trained with; it has y, x1"):
        forecaster.predict(frame[["y", "x1"]])
    with pytest.raises(DataError, match=r"has no column x1, which the model was trained with"):
        forecaster.predict(frame.rename(columns={"x1": "z"}))
    forecaster.save(tmp_path / "run")
    np.testing.assert_allclose(an.load(tmp_path / "run").predict(turned), wanted)


def test_fit_of_a_table_leaves_out_what_predict_leaves_out():
    """A column of times is no input, and a column of different series needs its targets beside it."""
    pandas = pytest.importorskip("pandas")
    days = range(1, 29)
    given = {
        "time": [f"2024-01-{d:02d}" for d in days],
        "a": [d % 5.0 for d in days],
        "b": [d % 3.0 for d in days],
    }
    rows = pandas.DataFrame(given)
    y = rows["a"] - rows["b"]
    few = {"window": 2, "steps": 2, "hidden": 8, "device": "cpu"}
    forecaster = an.Forecaster("mlp", **few).fit(rows, y)
    assert forecaster.n_features_in_ == 2
    assert forecaster.predict(rows).shape == (28,)
    two = rows.assign(series=rows["b"])
    with pytest.raises(DataError, match="X holds 3 series, by its column series"):
        an.Forecaster("mlp", **few).fit(two, y)
    with pytest.raises(DataError, match=r"X has a column y1, which is what fit\(X, y\) calls a target"):
        an.Forecaster("mlp", **few).fit([{"y1": value} for value in y], np.ones((28, 2)))


def test_an_exported_forecaster_reads_a_table_by_its_names(tmp_path):
    pytest.importorskip("onnxruntime")
    from anaphora import runtime

    table = {"a": np.sin(np.arange(60.0)), "b": 10 + np.arange(60.0)}
    rows = [{"a": a, "b": b} for a, b in zip(table["a"], table["b"], strict=True)]
    forecaster = an.Forecaster("linear", window=8, horizon=2, steps=3, device="cpu").fit(rows)
    forecaster.export(tmp_path / "onnx", to="onnx")
    runner = runtime.load(tmp_path / "onnx")
    turned = [{"b": row["b"], "a": row["a"]} for row in rows]
    np.testing.assert_allclose(runner.predict(turned), runner.predict(rows))
    np.testing.assert_allclose(runner.predict(turned), forecaster.predict(turned), atol=1e-4)
    with pytest.raises(DataError, match="an array has 3 columns"):
        runner.predict(np.ones((40, 3)))


@pytest.mark.parametrize("model", PRESETS)
def test_E11_values_that_overflow_end_in_a_sentence_and_write_no_run(model, tmp_path):
    """±1e308 has no finite mean: `median` wrote NaN into its run and said "dev loss 0"."""
    values = waves(60, 3)
    values[7, 1] = -1e308
    with pytest.raises(DataError, match=r"row 8, column x2: -1e\+308 is too large to compute with"):
        tiny(model).fit(values, out=tmp_path / "run")
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("model", ["median", "var", "lstm"])
def test_E11_values_whose_squares_vanish_are_refused_too(model):
    """Of values near 1e-200 the deviation came out as 0, and the error as 0 with it."""
    with pytest.raises(DataError, match="the values of column x1 differ by too little to compute with"):
        tiny(model).fit(1e-200 * waves(60, 3))


def test_E11_a_direct_model_that_is_not_finite_is_not_written(tmp_path, monkeypatch):
    from anaphora.tasks.forecast import estimator

    solved = estimator.solved
    monkeypatch.setattr(estimator, "solved", lambda *given: ({"loss": math.nan}, solved(*given)[1]))
    with pytest.raises(DataError, match="fitting var to these values overflows"):
        tiny("var").fit(waves(60, 3), out=tmp_path / "run")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_E11_history_that_overflows_is_refused_when_it_is_asked(of_preset):
    history = waves(60, 3)
    history[50, 0] = 1e200
    for model in ("median", "kalman", "linear"):
        with pytest.raises(DataError, match=r"row 51, column x1: 1e\+200 is too large"):
            of_preset(model).predict(history)


def test_border_3_7_nonnegative_false_frees_the_median():
    """30 − 0.4 t down to 2: twelve steps ahead the line is at −2.8, and a model of logarithms never goes below 0."""
    falling = {"degrees": [30 - 0.4 * t for t in range(71)]}
    free = an.Forecaster("median", horizon=12, nonnegative=False).fit(falling).predict(falling)
    np.testing.assert_allclose(np.ravel(free), [2 - 0.4 * k for k in range(1, 13)], atol=0.3)
    bounded = an.Forecaster("median", horizon=12).fit(falling).predict(falling)
    assert np.min(bounded) >= 0
