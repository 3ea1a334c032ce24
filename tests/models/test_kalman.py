"""The Kalman filter against the joint Gaussian it stands for, written out in full and conditioned exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

import anaphora as an
from anaphora.errors import DataError, RunError, SettingsError
from anaphora.models.classical.kalman.passes import em_step


def covariance(random, size, scale=1.0):
    root = random.normal(size=(size, size))
    return scale * (root @ root.T + 0.1 * np.eye(size))


def system(seed=0, n=3, m=2, k=1, steps=None):
    """A random model as a dict; matrices over time where ``steps`` is given."""
    random = np.random.default_rng(seed)
    many = () if steps is None else (steps,)
    square = [covariance(random, n) for _ in range(steps or 1)]
    noise = [covariance(random, m) for _ in range(steps or 1)]
    return {
        "A": 0.6 * random.normal(size=(*many, n, n)),
        "C": random.normal(size=(*many, m, n)),
        "Q": np.array(square) if steps else square[0],
        "R": np.array(noise) if steps else noise[0],
        "B": random.normal(size=(*many, n, k)),
        "D": random.normal(size=(*many, m, k)),
        "mean": random.normal(size=n),
        "covariance": covariance(random, n),
    }


def joint(p, x):
    """Mean and covariance of (h₁ … h_T, y₁ … y_T) as one long vector."""
    T, (n, m) = len(x), (p["A"].shape[-1], p["C"].shape[-2])
    at = [{k: (v[t] if k in "ABCDQR" and v.ndim == 3 else v) for k, v in p.items()} for t in range(T)]
    mean, cov = np.zeros(T * (n + m)), np.zeros((T * (n + m),) * 2)
    H = [slice(t * n, t * n + n) for t in range(T)]
    Y = [slice(T * n + t * m, T * n + t * m + m) for t in range(T)]
    mean[H[0]], cov[H[0], H[0]] = p["mean"], p["covariance"]
    for t in range(1, T):
        A = at[t]["A"]
        mean[H[t]] = A @ mean[H[t - 1]] + at[t]["B"] @ x[t]
        past = slice(0, t * n)
        cov[H[t], past] = A @ cov[H[t - 1], past]
        cov[past, H[t]] = cov[H[t], past].T
        cov[H[t], H[t]] = A @ cov[H[t - 1], H[t - 1]] @ A.T + at[t]["Q"]
    states = slice(0, T * n)
    big = np.zeros((T * m, T * n))
    noise = np.zeros((T * m, T * m))
    for t in range(T):
        big[t * m : t * m + m, H[t]] = at[t]["C"]
        noise[t * m : t * m + m, t * m : t * m + m] = at[t]["R"]
        mean[Y[t]] = at[t]["C"] @ mean[H[t]] + at[t]["D"] @ x[t]
    outputs = slice(T * n, None)
    cov[outputs, states] = big @ cov[states, states]
    cov[states, outputs] = cov[outputs, states].T
    cov[outputs, outputs] = big @ cov[states, states] @ big.T + noise
    return mean, cov, H, Y


def condition(mean, cov, wanted, seen, values):
    weight = np.linalg.solve(cov[np.ix_(seen, seen)], cov[np.ix_(seen, wanted)]).T
    return (
        mean[wanted] + weight @ (values - mean[seen]),
        cov[np.ix_(wanted, wanted)] - weight @ cov[np.ix_(seen, wanted)],
    )


@pytest.mark.parametrize("steps", [None, 9])
@pytest.mark.parametrize("missing", [False, True])
def test_filter_smoother_and_forecast_are_conditionals_of_the_joint_gaussian(steps, missing):
    p = system(1, steps=steps)
    random = np.random.default_rng(2)
    x = random.normal(size=(9, 1))
    model = an.Kalman(**p)
    y = model.sample(6, x[:6], seed=3)[1]
    if missing:
        y[0, 1] = y[2] = y[4, 0] = np.nan
    mean, cov, H, Y = joint(p, x)
    number = np.arange(len(mean))
    flat = np.concatenate([y.ravel(), np.full(6, np.nan)])
    places = np.concatenate([number[Y[t]] for t in range(9)])
    filtered, smoothed = model.filter(y, x[:6]), model.smooth(y, x[:6])
    for t in range(6):
        upto = [i for i in range(2 * t + 2) if not np.isnan(flat[i])]
        m, c = condition(mean, cov, number[H[t]], places[upto], flat[upto])
        np.testing.assert_allclose(filtered.mean[t], m, atol=1e-9)
        np.testing.assert_allclose(filtered.covariance[t], c, atol=1e-9)
        every = [i for i in range(12) if not np.isnan(flat[i])]
        m, c = condition(mean, cov, number[H[t]], places[every], flat[every])
        np.testing.assert_allclose(smoothed.mean[t], m, atol=1e-9)
        np.testing.assert_allclose(smoothed.covariance[t], c, atol=1e-9)
        if t:
            both = np.concatenate([number[H[t]], number[H[t - 1]]])
            c = condition(mean, cov, both, places[every], flat[every])[1]
            np.testing.assert_allclose(smoothed.lag_covariance[t - 1], c[:3, 3:], atol=1e-9)
    seen = places[every]
    away = flat[every] - mean[seen]
    S = cov[np.ix_(seen, seen)]
    exact = -0.5 * (len(seen) * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + away @ np.linalg.solve(S, away))
    np.testing.assert_allclose(model.log_likelihood(y, x[:6]), exact, rtol=1e-11)
    assert model.score(y, x[:6]) == pytest.approx(exact / len(seen))
    forecast = model.forecast(y, 3, x[:6], future=x[6:], level=0.9)
    for step in range(3):
        m, c = condition(mean, cov, number[Y[6 + step]], seen, flat[every])
        np.testing.assert_allclose(forecast.mean[step], m, atol=1e-9)
        np.testing.assert_allclose(forecast.covariance[step], c, atol=1e-9)
        np.testing.assert_allclose(forecast.high[step] - m, 1.6448536269514722 * np.sqrt(np.diag(c)))
    np.testing.assert_array_equal(model.predict(y, 3, x[:6], future=x[6:]), forecast.mean)


def test_local_level_by_hand():
    """h₁ ~ N(0, 1), y₁ = 2 with R = 1: P = 1/2, mean 1; then Q = 1/2 makes P' = 1, and y₂ = 3 gives mean 2."""
    model = an.Kalman.local_level(level=0.5, noise=1.0, initial=1.0)
    found = model.filter([2.0, 3.0])
    np.testing.assert_allclose(found.mean[:, 0], [1.0, 2.0])
    np.testing.assert_allclose(found.covariance[:, 0, 0], [0.5, 0.5])
    np.testing.assert_allclose(model.smooth([2.0, 3.0]).mean[:, 0], [1.5, 2.0])
    np.testing.assert_allclose(model.forecast([2.0, 3.0], 2).covariance[:, 0, 0], [2.0, 2.5])


def test_a_batch_is_its_series_one_by_one():
    model = an.Kalman(**system(4))
    random = np.random.default_rng(5)
    x = random.normal(size=(5, 20, 1))
    y = model.sample(20, x, series=5, seed=6)[1]
    holes = y.copy()
    holes[1, 3:5] = holes[3, 7, 0] = np.nan
    for batch in (y, holes):
        filtered, smoothed = model.filter(batch, x), model.smooth(batch, x)
        ahead = model.forecast(batch, 2, x, future=[[0.5], [1.0]])
        for s in range(5):
            np.testing.assert_allclose(filtered.mean[s], model.filter(batch[s], x[s]).mean, atol=1e-12)
            own = model.smooth(batch[s], x[s])
            np.testing.assert_allclose(smoothed.mean[s], own.mean, atol=1e-12)
            np.testing.assert_allclose(smoothed.covariance[s], own.covariance, atol=1e-12)
            assert filtered.log_likelihood[s] == pytest.approx(own.log_likelihood, rel=1e-12)
            alone = model.forecast(batch[s], 2, x[s], future=[[0.5], [1.0]])
            np.testing.assert_allclose(ahead.low[s], alone.low, atol=1e-12)


def test_smoothing_never_adds_variance_even_where_nothing_is_known_of_the_start():
    model = an.Kalman.local_trend(level=0.1, slope=0.01) + an.Kalman.seasonal(4, season=0.0)
    y = model.sample(40, seed=1)[1] / 1000
    y[10:14] = np.nan
    filtered, smoothed = model.filter(y), model.smooth(y)
    for t in range(40):
        gap = filtered.covariance[t] - smoothed.covariance[t]
        assert np.linalg.eigvalsh(gap).min() > -1e-8 * max(1.0, np.abs(filtered.covariance[t]).max())
        assert np.linalg.eigvalsh(smoothed.covariance[t]).min() > -1e-9


def test_a_series_after_its_fixed_point_is_as_if_the_matrices_were_given_for_each_step():
    p = system(7)
    over_time = {k: np.repeat(v[None], 400, 0) if k in "ABCDQR" else v for k, v in p.items()}
    x = np.random.default_rng(0).normal(size=(400, 1))
    y = an.Kalman(**p).sample(400, x, seed=2)[1]
    one, other = an.Kalman(**p).smooth(y, x), an.Kalman(**over_time).smooth(y, x)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-11)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-12)
    assert one.log_likelihood == pytest.approx(other.log_likelihood, rel=1e-12)


def test_a_state_without_variance_is_passed_over():
    """The second state is a constant that is known exactly, so the predicted covariance has no inverse."""
    model = an.Kalman(
        np.eye(2), [[1.0, 1.0]], np.diag([1.0, 0.0]), [[1.0]], mean=[0, 5], covariance=np.diag([1.0, 0.0])
    )
    y = np.array([5.5, 6.0, 4.0])
    plain = an.Kalman.local_level(level=1.0, noise=1.0, initial=1.0).smooth(y - 5)
    found = model.smooth(y)
    np.testing.assert_allclose(found.mean[:, 0], plain.mean[:, 0])
    np.testing.assert_allclose(found.mean[:, 1], 5.0)
    np.testing.assert_allclose(found.covariance[:, 0, 0], plain.covariance[:, 0, 0])


SUBSETS = st.sets(st.sampled_from(["A", "B", "C", "D", "Q", "R", "mean", "covariance"]), min_size=1)


@effort(max_examples=25)
@given(seed=st.integers(0, 10_000), free=SUBSETS, missing=st.booleans())
def test_em_never_lowers_the_likelihood(seed, free, missing):
    p = system(seed, n=2)
    random = np.random.default_rng(seed)
    x = random.normal(size=(2, 15, 1))
    y = an.Kalman(**system(seed + 1, n=2)).sample(15, x, series=2, seed=seed)[1]
    if missing:
        y[random.random(y.shape) < 0.3] = np.nan
    now = an.Kalman(**p)._p
    last = -np.inf
    for _ in range(4):
        now, likelihood = em_step(now, y, x, free, ())
        assert likelihood >= last - 1e-8 * abs(last if np.isfinite(last) else 1.0)
        last = likelihood


def test_em_leaves_the_rest_alone_and_finds_the_variances():
    truth = an.Kalman.local_level(level=0.5, noise=2.0, initial=1.0)
    y = truth.sample(300, series=10, seed=0)[1]
    model = an.Kalman.local_level(initial=1.0)
    before = model.parameters
    assert model.fit(y, iterations=200, tolerance=1e-8) is model
    after = model.parameters
    assert after["Q"][0, 0] == pytest.approx(0.5, rel=0.15)
    assert after["R"][0, 0] == pytest.approx(2.0, rel=0.1)
    for name in ("A", "C", "mean", "covariance"):
        np.testing.assert_array_equal(before[name], after[name])
    assert (np.diff(model.history) >= 0).all()
    assert model.history[-1] >= truth.log_likelihood(y).sum()


def test_em_keeps_components_apart():
    model = an.Kalman.local_level() + an.Kalman.seasonal(4)
    y = np.tile([1.0, 2.0, 3.0, 4.0], 20) + 0.1 * np.random.default_rng(0).normal(size=80)
    model.fit(y, iterations=30)
    Q = model.parameters["Q"]
    assert np.count_nonzero(Q - np.diag(np.diag(Q))) == 0
    assert Q[2, 2] == Q[3, 3] == 0
    np.testing.assert_allclose(model.predict(y, 4)[:, 0], [1, 2, 3, 4], atol=0.25)


def test_partial_em_with_matrices_over_time():
    p = system(3, n=2, steps=12)
    fixed = {**p, "Q": p["Q"][0], "R": p["R"][0]}
    x = np.zeros((12, 1))
    y = an.Kalman(**fixed).sample(12, x, series=30, seed=1)[1]
    model = an.Kalman(**{**fixed, "Q": 3 * np.eye(2), "R": 3 * np.eye(2)})
    model.fit(y, x, parameters=["Q", "R"], iterations=20)
    assert len(model.history) > 2
    assert (np.diff(model.history) >= 0).all()
    with pytest.raises(SettingsError, match="A, Q cannot be estimated while A, B changes"):
        model.fit(y, x, parameters=["A", "Q"])


def test_samples_have_the_joint_gaussian_s_moments():
    p = system(8, n=2, m=1)
    x = np.ones((3, 1))
    mean, cov, _, _ = joint(p, x)
    h, y = an.Kalman(**p).sample(3, x, series=40_000, seed=1)
    drawn = np.concatenate([h.reshape(len(h), -1), y.reshape(len(y), -1)], 1)
    spread = np.sqrt(np.diag(cov))
    assert (np.abs(drawn.mean(0) - mean) < 5 * spread / 200).all()
    assert (np.abs(np.cov(drawn.T) - cov) < 0.05 * np.outer(spread, spread)).all()


def test_saved_and_loaded_is_the_same(tmp_path):
    for model in (an.Kalman.local_level() + an.Kalman.seasonal(3), an.Kalman(**system(2, steps=5))):
        model.save(tmp_path / "model.safetensors")
        again = an.Kalman.load(tmp_path / "model.safetensors")
        for name, value in model.parameters.items():
            np.testing.assert_array_equal(value, again.parameters[name])
        assert (model._free, model._diagonal) == (again._free, again._diagonal)
    data = bytearray((tmp_path / "model.safetensors").read_bytes())
    data[-3] ^= 1
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(RunError, match="checksum"):
        an.Kalman.load(tmp_path / "model.safetensors")
    with pytest.raises(RunError, match="cannot be read"):
        an.Kalman.load(tmp_path / "none.safetensors")


def test_bad_input_is_refused_in_a_sentence():
    level = an.Kalman.local_level()
    with pytest.raises(SettingsError, match="Q: is \\(2, 2\\)"):
        an.Kalman([[1.0]], [[1.0]], np.eye(2), [[1.0]])
    with pytest.raises(SettingsError, match="R: has a negative eigenvalue"):
        an.Kalman([[1.0]], [[1.0]], [[1.0]], [[-1.0]])
    with pytest.raises(SettingsError, match="A: holds a NaN"):
        an.Kalman([[np.nan]], [[1.0]], [[1.0]], [[1.0]])
    with pytest.raises(SettingsError, match="period"):
        an.Kalman.seasonal(1)
    with pytest.raises(DataError, match="1 outputs"):
        level.filter(np.zeros((4, 2)))
    with pytest.raises(DataError, match="empty"):
        level.filter([])
    with pytest.raises(DataError, match="pad shorter series"):
        level.filter([[[1.0]], [[1.0], [2.0]]])
    with pytest.raises(DataError, match="x: is \\(3, 1\\)"):
        level.filter([1.0, 2.0, 3.0], x=np.zeros((3, 1)))
    with pytest.raises(DataError, match="the model has 1 inputs"):
        an.Kalman(**system()).filter(np.zeros((3, 2)))
    with pytest.raises(DataError, match="singular"):
        an.Kalman.local_level(level=0.0, noise=0.0, initial=0.0).filter([1.0])
    with pytest.raises(SettingsError, match="'W' is none of"):
        level.fit([1.0, 2.0], parameters=["W"])
    with pytest.raises(DataError, match="A: is given for 5 steps, but 6"):
        an.Kalman(**system(steps=5)).forecast(np.zeros((4, 2)), 2, np.zeros((4, 1)), future=np.zeros((2, 1)))


def test_parity_with_statsmodels():
    space = pytest.importorskip("statsmodels.tsa.statespace.kalman_smoother")
    p = system(9, n=4, m=2, k=0)
    model = an.Kalman(**p)
    y = model.sample(60, seed=1)[1]
    y[5], y[9, 0] = np.nan, np.nan
    peer = space.KalmanSmoother(k_endog=2, k_states=4)
    peer["design"], peer["obs_cov"], peer["transition"] = p["C"], p["R"], p["A"]
    peer["selection"], peer["state_cov"] = np.eye(4), p["Q"]
    peer.initialize_known(p["mean"], p["covariance"])
    peer.bind(np.asfortranarray(y.T))
    theirs, ours = peer.smooth(), model.smooth(y)
    np.testing.assert_allclose(ours.mean, theirs.smoothed_state.T, atol=1e-7)
    np.testing.assert_allclose(ours.covariance, theirs.smoothed_state_cov.transpose(2, 0, 1), atol=1e-7)
    assert ours.log_likelihood == pytest.approx(theirs.llf, rel=1e-9)
