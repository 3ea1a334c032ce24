"""Forecasting models against hand-worked values, against each other and against simulated truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from anaphora.data.series_readers import open_series
from anaphora.data.series_scale import Columns
from anaphora.models.classical.kalman.model import from_lags, structural, trigonometric
from anaphora.models.classical.var import VAR
from anaphora.models.forecaster import DilatedReader, Forecaster, RecurrentReader, WindowMap
from anaphora.models.forecaster_classical import KalmanForecaster, VARForecaster, restored
from anaphora.nn import LSTM, DilatedStack, Recurrent


def reader(inputs, width=8):
    return RecurrentReader(Recurrent(LSTM(inputs, width)))


def learnt(data, **more):
    return Columns.learn(
        open_series(data), **{"targets": (), "known": (), "output": "continuous", "period": 1, **more}
    )


def future(batch, horizon, known=0, places=1):
    return torch.zeros(batch, places, horizon, known)


def test_a_window_map_by_hand():
    model = WindowMap(targets=1, others=0, known=0, window=3, horizon=2, normalize="last")
    with torch.no_grad():
        model.own.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]))
        model.own.bias.copy_(torch.tensor([0.0, 1.0]))
    out = model(torch.tensor([[[2.0], [3.0], [5.0]]]), future(1, 2))
    assert out[0, 0, :, 0].tolist() == [5.0, 5.0 + 3.0 + 1.0]  # the last value, less W (2 − 5), plus b


@pytest.mark.parametrize("kind", ["last", "window"])
def test_normalised_forecasts_move_with_the_level(kind):
    torch.manual_seed(0)
    model = Forecaster(reader(2), targets=2, horizon=3, normalize=kind).eval()
    x = torch.randn(4, 6, 2)
    moved = model(x + 7.0, future(4, 3))
    torch.testing.assert_close(moved, model(x, future(4, 3)) + 7.0, atol=1e-4, rtol=0)
    if kind == "window":
        torch.testing.assert_close(model(3 * x, future(4, 3)), 3 * model(x, future(4, 3)), atol=1e-3, rtol=0)


def test_apart_means_that_targets_do_not_see_each_other():
    torch.manual_seed(0)
    model = Forecaster(reader(1), targets=3, horizon=2, apart=True).eval()
    x = torch.randn(2, 5, 3)
    before = model(x, future(2, 2))
    changed = x.clone()
    changed[..., 1] += 1.0
    after = model(changed, future(2, 2))
    torch.testing.assert_close(after[..., [0, 2]], before[..., [0, 2]])
    assert (after[..., 1] - before[..., 1]).abs().min() > 1e-6
    alone = Forecaster(reader(1), targets=1, horizon=2).eval()
    alone.load_state_dict({k: v for k, v in model.state_dict().items() if k != "errors"}, strict=False)
    torch.testing.assert_close(alone(x[..., 1:2], future(2, 2)), before[..., 1:2])


def test_patches_keep_the_order_of_time():
    """With a reader that hands its input on, the last state is the last patch."""

    class Same(torch.nn.Module):
        width = 4

        def forward(self, x, lengths=None):
            return x

    model = Forecaster(Same(), targets=2, horizon=2, patch=2)
    with torch.no_grad():
        model.head.weight.copy_(torch.eye(4))
        model.head.bias.zero_()
    x = torch.arange(12.0).view(1, 6, 2)
    assert model(x, future(1, 2))[0, 0].tolist() == [[8.0, 9.0], [10.0, 11.0]]


def test_known_columns_reach_their_step_and_none_before():
    torch.manual_seed(0)
    model = Forecaster(reader(3), targets=1, horizon=4, known=[1]).eval()
    x, ahead = torch.randn(1, 5, 2), torch.randn(1, 1, 4, 1)
    before = model(x, ahead)
    ahead[0, 0, 2] += 1.0
    moved = (model(x, ahead) - before).abs()[0, 0, :, 0]
    assert moved[:2].tolist() == [0, 0]
    assert (moved[2:] > 1e-6).all()


@pytest.mark.parametrize("kind", ["recurrent", "dilated"])
def test_outputs_after_every_step_are_those_of_the_series_so_far(kind):
    torch.manual_seed(0)
    part = reader(2) if kind == "recurrent" else DilatedReader(2, 8, DilatedStack(8, 2, 3))
    model = Forecaster(part, targets=2, horizon=3).eval()
    x = torch.randn(1, 7, 2)
    every = model(x, future(1, 3, places=7), torch.tensor([7]))
    for step in range(1, 8):
        torch.testing.assert_close(
            every[:, step - 1 : step], model(x[:, :step], future(1, 3)), atol=1e-6, rtol=1e-5
        )


# ---- ancestors


def autoregression(steps=800, seed=0):
    random = np.random.default_rng(seed)
    A = np.array([[0.6, 0.2], [-0.3, 0.5]])
    y = np.zeros((steps, 2))
    for t in range(1, steps):
        y[t] = A @ y[t - 1] + random.normal(size=2)
    return y


def test_var_forecasts_are_those_of_the_var():
    y = autoregression()
    columns = learnt(y)
    model = VARForecaster.fit([columns.standardised(y)], columns, lags=2, max_lags=5)
    own = VAR(2).fit(columns.standardised(y))
    for end in (10, 400):
        told = model.forecast(columns.standardised(y), np.array([end]), 5)[0]
        np.testing.assert_allclose(told, own.predict(columns.standardised(y)[:end], 5), atol=1e-10)


def test_var_learns_from_what_is_whole_and_from_several_lengths():
    y = autoregression(3000)
    columns = learnt(y)
    whole = VAR(1).fit(y)
    y[np.random.default_rng(1).random(len(y)) < 0.1, 1] = np.nan
    model = VARForecaster.fit([columns.standardised(y)], columns, lags=1, max_lags=5)
    scale = np.array(columns.scale)
    np.testing.assert_allclose(
        model.coefficients[0] * scale[:, None] / scale, whole.coefficients[0], atol=0.05
    )
    parts = VAR(1).fit([autoregression(300), autoregression(500, 1)])
    pieces = (autoregression(300), autoregression(500, 1))
    before = np.concatenate([np.column_stack([np.ones(len(one) - 1), one[:-1]]) for one in pieces])
    beta = np.linalg.lstsq(before, np.concatenate([one[1:] for one in pieces]), rcond=None)[0]
    np.testing.assert_allclose(parts.table, beta, atol=1e-10)


def test_var_follows_what_is_known_in_advance():
    """y is x of the same step and a little noise: given the future of x, y is told almost exactly."""
    random = np.random.default_rng(0)
    x = random.normal(size=500)
    data = {"y": x + 0.01 * random.normal(size=500), "x": x}
    columns = learnt(data, targets=("y",), known=("x",))
    values = columns.standardised(np.stack(list(data.values()), 1))
    model = VARForecaster.fit([values], columns, lags=1, max_lags=1)
    told = model.forecast(values, np.arange(50, 480), 10)
    truth = np.stack([values[t : t + 10, :1] for t in range(50, 480)])
    assert ((told - truth) ** 2).mean() < 0.01


def test_kalman_forecasts_are_those_of_the_filter_gaps_and_all():
    y = autoregression(300)
    y[40:60, 0] = np.nan
    columns = learnt(y)
    values = columns.standardised(y)
    for structure in ("level", "trend", "dynamic"):
        model = KalmanForecaster.fit([values], columns, structure=structure, states=4, iterations=3)
        assert len(model.models) == (1 if structure == "dynamic" else 2)
        told = model.forecast(values, np.array([50, 200]), 6)
        for row, end in enumerate((50, 200)):
            parts = [
                one.predict(values[:end, outputs], 6)
                for one, outputs in zip(model.models, model._outputs, strict=True)
            ]
            np.testing.assert_allclose(told[row], np.concatenate(parts, 1), atol=1e-9)
        model.errors = np.zeros((101, 6, 2))
        again = restored(columns, model.arrays())
        np.testing.assert_array_equal(again.forecast(values, np.array([50, 200]), 6), told)


def test_a_dynamical_system_is_found_again_from_what_drives_it():
    data = open_series("waves:linear")
    columns = Columns.learn(data, targets=(), known=(), output="continuous", period=1)
    values = columns.standardised(data.series[0].values[:2000])
    model = KalmanForecaster.fit([values[:1500]], columns, structure="dynamic", states=2, iterations=50)
    told = model.forecast(values, np.arange(1550, 1950), 24)
    truth = np.stack([values[t : t + 24, 1:] for t in range(1550, 1950)])
    noise = (0.05 / columns.scale[1]) ** 2
    assert ((told - truth) ** 2).mean() < 1.3 * noise  # next to nothing but the noise of the readings is left
    assert np.abs(np.linalg.eigvals(model.models[0].parameters["A"])).max() < 1


def test_waves_of_a_season_repeat_and_sum_to_nothing():
    model = trigonometric(24, 3)
    A, C = model.parameters["A"], model.parameters["C"]
    state = np.arange(1.0, 7.0)
    path = [(C @ np.linalg.matrix_power(A, t) @ state).item() for t in range(48)]
    np.testing.assert_allclose(path[:24], path[24:], atol=1e-9)
    assert sum(path[:24]) == pytest.approx(0, abs=1e-9)
    assert trigonometric(4, 4).states == 3  # the wave of two steps has no partner
    assert structural(slope=True, period=7).states == 2 + 6
    assert structural(slope=False, period=24, inputs=2).inputs == 2


def test_a_system_from_lags_is_the_regression_to_begin_with():
    y = autoregression(4000)
    model = from_lags([y], [np.zeros((4000, 0))], 1)
    np.testing.assert_allclose(model.parameters["A"], VAR(1, trend="none").fit(y).coefficients[0], atol=1e-3)
