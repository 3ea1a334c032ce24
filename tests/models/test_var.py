"""Vector autoregression against plain least squares, its own definition, and statsmodels where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

import anaphora as an
from anaphora.errors import DataError, RunError, SettingsError
from anaphora.models.classical.var import f_tail, incomplete_beta, triangle

A1 = np.array([[0.5, 0.2, 0.0], [0.0, 0.4, 0.0], [0.1, 0.0, 0.3]])
A2 = np.array([[0.1, 0.0, 0.0], [0.0, -0.2, 0.0], [0.0, 0.3, 0.1]])


def walk(steps=400, seed=0, slope=0.0):
    random = np.random.default_rng(seed)
    y = np.zeros((steps, 3))
    for t in range(2, steps):
        y[t] = np.array([1.0, 0.5, -1.0]) + slope * t + A1 @ y[t - 1] + A2 @ y[t - 2] + random.normal(size=3)
    return y[100:] if not slope else y


def regressors(y, lags, trend):
    rows = []
    for t in range(lags, len(y)):
        head = {"none": [], "constant": [1.0], "linear": [1.0, t + 1.0]}[trend]
        rows.append(np.concatenate([head, *[y[t - j] for j in range(1, lags + 1)]]))
    return np.array(rows), y[lags:]


@pytest.mark.parametrize("trend", ["none", "constant", "linear"])
def test_fit_is_least_squares(trend):
    y = walk(slope=0.01)
    Z, Y = regressors(y, 2, trend)
    beta = np.linalg.lstsq(Z, Y, rcond=None)[0]
    rest = Y - Z @ beta
    sigma = rest.T @ rest / (len(Z) - Z.shape[1])
    errors = np.sqrt(np.diag(np.kron(np.linalg.inv(Z.T @ Z), sigma))).reshape(beta.shape)
    model = an.VAR(2, trend=trend).fit(y)
    np.testing.assert_allclose(model.table, beta, atol=1e-10)
    np.testing.assert_allclose(model.covariance, sigma, rtol=1e-9)
    np.testing.assert_allclose(model.standard_errors, errors, rtol=1e-8)
    np.testing.assert_allclose(model.t_values, beta / errors, rtol=1e-6, atol=1e-9)
    head = ["none", "constant", "linear"].index(trend)
    np.testing.assert_allclose(model.coefficients[1], beta[head + 3 :].T, atol=1e-10)
    density = -0.5 * (
        3 * np.log(2 * np.pi)
        + np.linalg.slogdet(sigma)[1]
        + np.einsum("ti,ij,tj->t", rest, np.linalg.inv(sigma), rest)
    )
    assert model.score(y) == pytest.approx(density.mean() / 3)
    most_likely = rest.T @ rest / len(Z)
    exact = -0.5 * len(Z) * (3 * np.log(2 * np.pi) + np.linalg.slogdet(most_likely)[1] + 3)
    assert model.log_likelihood == pytest.approx(exact)


def test_an_autoregression_by_hand():
    """y = 1, 2, 4, 8 without an intercept is yₜ = 2 yₜ₋₁ exactly but for the second column's noise."""
    y = np.array([[1.0, 1.0], [2.0, -1.0], [4.0, 1.0], [8.0, 1.0], [16.0, -1.0]])
    model = an.VAR(1, trend="none").fit(y)
    np.testing.assert_allclose(model.coefficients[0][0], [2.0, 0.0], atol=1e-12)
    assert not model.stable
    np.testing.assert_allclose(model.predict(y, 2)[:, 0], [32.0, 64.0])


def test_every_order_from_one_factor_is_every_order_fitted():
    y = walk(300)
    found = an.VAR(max_lags=4).select_order(y)
    for order in range(5):
        Z, Y = regressors(y, order, "constant")
        Z, Y = Z[4 - order :], Y[4 - order :]
        N, q = Z.shape
        rest = Y - Z @ np.linalg.lstsq(Z, Y, rcond=None)[0]
        log_det = np.linalg.slogdet(rest.T @ rest / N)[1]
        assert found.criteria["aic"][order] == pytest.approx(log_det + 2 * 3 * q / N, abs=1e-10)
        assert found.criteria["bic"][order] == pytest.approx(log_det + np.log(N) * 3 * q / N, abs=1e-10)
        assert found.criteria["hqic"][order] == pytest.approx(log_det + 2 * np.log(np.log(N)) * 3 * q / N)
        assert found.criteria["fpe"][order] == pytest.approx(((N + q) / (N - q)) ** 3 * np.exp(log_det))
    assert found.best["aic"] == np.argmin(found.criteria["aic"]) == 2
    assert an.VAR("aic", max_lags=4).fit(y).order == 2


def test_noise_has_no_order():
    y = np.random.default_rng(0).normal(size=(500, 2))
    model = an.VAR("bic").fit(y)
    assert model.order == 0
    assert model.stable
    np.testing.assert_allclose(model.predict(y, 3), np.tile(y.mean(0), (3, 1)))
    with pytest.raises(SettingsError, match="without lags"):
        model.granger(0, 1)


def test_forecast_is_the_recursion_and_its_spread_is_that_of_simulated_futures():
    y = walk(slope=0.002)
    model = an.VAR(2, trend="linear").fit(y)
    forecast = model.forecast(y, 3, level=0.8)
    past = list(y)
    for step in range(3):
        t = len(past) + 1
        past.append(
            model.intercept
            + model.slope * t
            + model.coefficients[0] @ past[-1]
            + model.coefficients[1] @ past[-2]
        )
        np.testing.assert_allclose(forecast.mean[step], past[-1])
    random = np.random.default_rng(1)
    shocks = random.multivariate_normal(np.zeros(3), model.covariance, size=(40_000, 3))
    state = np.zeros((40_000, 5, 3))
    for step in range(3):
        state[:, step + 2] = (
            state[:, step + 1] @ model.coefficients[0].T
            + state[:, step] @ model.coefficients[1].T
            + shocks[:, step]
        )
    np.testing.assert_allclose(np.cov(state[:, 4].T), forecast.covariance[2], atol=0.06)
    inside = np.abs(state[:, 4, 0]) < forecast.high[2, 0] - forecast.mean[2, 0]
    assert inside.mean() == pytest.approx(0.8, abs=0.01)


def test_impulse_responses_are_the_paths_of_a_shock():
    model = an.VAR(2).fit(walk())
    plain, orthogonal = model.impulse_responses(6), model.impulse_responses(6, orthogonal=True)
    L = np.linalg.cholesky(model.covariance)
    for cause in range(3):
        for shock, responses in ((np.eye(3)[cause], plain), (L[:, cause], orthogonal)):
            path = [np.zeros(3), shock]
            for _ in range(6):
                path.append(model.coefficients[0] @ path[-1] + model.coefficients[1] @ path[-2])
            np.testing.assert_allclose(responses[:, :, cause], path[1:], atol=1e-12)
    assert model.stable
    assert np.abs(model.impulse_responses(200)[-1]).max() < 1e-6
    roots = np.linalg.eigvals(np.block([[*model.coefficients], [np.eye(3), np.zeros((3, 3))]]))
    np.testing.assert_allclose(np.sort(np.abs(roots)), np.sort(np.abs(model.eigenvalues)))


def test_granger_finds_the_cause_and_only_it():
    model = an.VAR(2).fit(walk(2000, seed=3))
    assert model.granger(1, 0).p_value < 1e-6  # A1[0, 1] = 0.2
    assert model.granger(2, 0).p_value > 0.01  # column 0 never looks at column 2
    found = model.granger([0, 2], 1)
    assert found == model.granger(np.array([0, 2]), np.int64(1))
    assert found.degrees == (4, 3 * (1900 - 2 - 7))
    assert found.p_value > 0.01


def test_wald_statistic_with_the_kronecker_product_written_out():
    y = walk()
    model = an.VAR(2).fit(y)
    Z, _ = regressors(y, 2, "constant")
    big = np.kron(np.linalg.inv(Z.T @ Z), model.covariance)  # of the table, row by row
    rows = [(1 + lag * 3 + c) * 3 + effect for lag in range(2) for c in (1, 2) for effect in (0,)]
    beta = model.table.ravel()[rows]
    F = beta @ np.linalg.solve(big[np.ix_(rows, rows)], beta) / 4
    assert model.granger([1, 2], 0).statistic == pytest.approx(F)


@pytest.mark.parametrize(
    ("value", "one", "two", "tail"),
    [
        (161.4476387975881, 1, 1, 0.05),  # the printed 5 % points of the F tables: 161.45, 3.33, 4.10
        (3.3258345304130112, 5, 10, 0.05),
        (5 * (0.05 ** (-1 / 5) - 1), 2, 10, 0.05),  # for 2 degrees (1 + 2F/d)^(−d/2)
        (1.0, 7, 7, 0.5),
    ],
)
def test_the_tail_of_f(value, one, two, tail):
    assert f_tail(value, one, two) == pytest.approx(tail, abs=1e-12)


@effort(max_examples=60)
@given(st.floats(0.2, 300), st.floats(0.2, 300), st.floats(0.0, 1.0))
def test_incomplete_beta_has_its_symmetry_and_closed_forms(a, b, x):
    assert incomplete_beta(a, b, x) == pytest.approx(1 - incomplete_beta(b, a, 1 - x), abs=1e-10)
    assert incomplete_beta(a, 1.0, x) == pytest.approx(x**a, abs=1e-11)
    assert incomplete_beta(1.0, b, x) == pytest.approx(1 - (1 - x) ** b, abs=1e-11)


def test_near_columns_take_reflections_and_keep_their_digits():
    random = np.random.default_rng(0)
    M = random.normal(size=(200, 4))
    M[:, 2] = M[:, 1] + 1e-7 * M[:, 2]
    np.testing.assert_allclose(
        triangle(M), np.abs(np.linalg.qr(M, mode="r")) * np.sign(triangle(M)), rtol=1e-12
    )
    far = random.normal(size=(200, 4))
    np.testing.assert_allclose(triangle(far).T @ triangle(far), far.T @ far, rtol=1e-10, atol=1e-10)
    assert (np.diag(triangle(M)) > 0).all()


def test_several_series_are_one_fit_and_none_reaches_into_another():
    y = np.stack([walk(200, seed=s) for s in range(3)])
    parts = [regressors(one, 2, "constant") for one in y]
    Z, Y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    model = an.VAR(2).fit(y)
    np.testing.assert_allclose(model.table, np.linalg.lstsq(Z, Y, rcond=None)[0], atol=1e-10)
    ahead = model.forecast(y, 4)
    for s in range(3):
        np.testing.assert_allclose(ahead.low[s], model.forecast(y[s], 4).low)


def test_saved_and_loaded_is_the_same(tmp_path):
    model = an.VAR("bic", max_lags=3, trend="linear").fit(walk(slope=0.01))
    model.save(tmp_path / "var.safetensors")
    again = an.VAR.load(tmp_path / "var.safetensors")
    np.testing.assert_array_equal(model.table, again.table)
    np.testing.assert_array_equal(model.standard_errors, again.standard_errors)
    assert (model.order, model.lags, model.log_likelihood) == (again.order, again.lags, again.log_likelihood)
    with pytest.raises(RunError, match="holds a VAR in format 1, not a Kalman"):
        an.Kalman.load(tmp_path / "var.safetensors")


def test_bad_input_is_refused_in_a_sentence():
    y = walk()
    with pytest.raises(SettingsError, match="lags: is 0"):
        an.VAR(0)
    with pytest.raises(SettingsError, match="trend: is 'cubic'"):
        an.VAR(1, trend="cubic")
    with pytest.raises(DataError, match="not fitted yet"):
        an.VAR().predict(y, 1)
    with pytest.raises(DataError, match="NaN"):
        an.VAR().fit(np.where(y > 3, np.nan, y))
    with pytest.raises(DataError, match="combination"):
        an.VAR().fit(np.concatenate([y, y[:, :1] + y[:, 1:2]], 1))
    with pytest.raises(DataError, match="cannot determine 7 coefficients"):
        an.VAR(2).fit(y[:6])
    with pytest.raises(DataError, match="has 2 steps, but 2 lags"):
        an.VAR(2).fit(y[:2])
    with pytest.raises(DataError, match="2 columns"):
        an.VAR().fit(y).predict(y[:, :2], 1)
    with pytest.raises(SettingsError, match="different columns"):
        an.VAR().fit(y).granger(0, 0)


def test_parity_with_statsmodels():
    api = pytest.importorskip("statsmodels.tsa.api")
    y = walk()
    model, peer = an.VAR(2).fit(y), api.VAR(y).fit(2)
    np.testing.assert_allclose(model.table, peer.params, atol=1e-10)
    np.testing.assert_allclose(model.standard_errors, peer.stderr, atol=1e-10)
    np.testing.assert_allclose(model.impulse_responses(8), peer.irf(8).irfs, atol=1e-10)
    np.testing.assert_allclose(model.impulse_responses(8, orthogonal=True), peer.irf(8).orth_irfs, atol=1e-10)
    assert model.log_likelihood == pytest.approx(peer.llf)
    middle, low, high = peer.forecast_interval(y[-2:], 5)
    forecast = model.forecast(y, 5)
    for ours, theirs in ((forecast.mean, middle), (forecast.low, low), (forecast.high, high)):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    test, theirs = model.granger(1, 0), peer.test_causality(0, 1, kind="f")
    assert test.statistic == pytest.approx(theirs.test_statistic)
    assert test.p_value == pytest.approx(theirs.pvalue, rel=1e-6)
    assert an.VAR(max_lags=6).select_order(y).best == {
        name: int(order) for name, order in api.VAR(y).select_order(6).selected_orders.items()
    }
