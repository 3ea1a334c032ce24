"""Mixtures as emissions are chains with more states, seen from afar."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anaphora as an
from anaphora.errors import SettingsError

KINDS = ("diagonal", "full", "tied", "spherical")
K, M, D = 2, 3, 2


def mixture(kind: str) -> an.HMM:
    rng = np.random.default_rng(0)
    root = rng.standard_normal((K, M, D, D))
    full = root @ root.swapaxes(-1, -2) + 0.3 * np.eye(D)
    covariances = {
        "full": full,
        "tied": full[0, 0],
        "diagonal": rng.uniform(0.5, 2, (K, M, D)),
        "spherical": rng.uniform(0.5, 2, (K, M)),
    }
    return an.HMM(K, emissions="mixture", components=M, covariance=kind).set(
        start=[0.3, 0.7],
        transitions=[[0.9, 0.1], [0.4, 0.6]],
        weights=rng.dirichlet(np.ones(M), K),
        means=3 * rng.standard_normal((K, M, D)),
        covariances=covariances[kind],
    )


def expanded(model: an.HMM) -> an.HMM:
    """The chain over (state, component): enter (j, m) from (i, ·) with A_ij w_jm."""
    p = model.parameters
    c = p["covariances"]
    kind = model.settings.covariance
    return an.HMM(K * M, covariance=kind).set(
        start=(p["start"][:, None] * p["weights"]).ravel(),
        transitions=np.repeat((p["transitions"][:, :, None] * p["weights"]).reshape(K, K * M), M, axis=0),
        means=p["means"].reshape(K * M, D),
        covariances=c if kind == "tied" else c.reshape(K * M, *c.shape[2:]),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_it_equals_the_chain_over_states_and_components(kind: str) -> None:
    model = mixture(kind)
    x, _ = model.sample(40, seed=1)
    x[3, 0] = x[10] = np.nan
    large = expanded(model)
    assert model.log_likelihood(x) == pytest.approx(large.log_likelihood(x), rel=1e-12)
    np.testing.assert_allclose(model.smooth(x), large.smooth(x).reshape(-1, K, M).sum(2), atol=1e-10)
    tied = D * (D + 1) // 2
    own = {"diagonal": K * M * D, "spherical": K * M, "full": K * M * tied, "tied": tied}[kind]
    assert model.free_parameters == 1 + 2 + K * (M - 1) + K * M * D + own


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_of_one_is_a_gaussian(kind: str) -> None:
    x, _ = mixture(kind).sample(80, seed=2)
    one = an.HMM(2, covariance=kind).fit(x, iterations=1, tolerance=None)
    p = one.parameters
    c = p["covariances"]
    p |= {"means": p["means"][:, None], "covariances": c if kind == "tied" else c[:, None]}
    same = an.HMM(2, emissions="mixture", components=1, covariance=kind).set(weights=[[1], [1]], **p)
    history = one.set(**one.parameters).fit(x, iterations=5, tolerance=None).history
    np.testing.assert_allclose(same.fit(x, iterations=5, tolerance=None).history, history, rtol=1e-12)


def test_one_step_of_em_is_the_weighted_moments() -> None:
    """Shares of (state, component) are the posteriors of the larger chain."""
    model = mixture("diagonal")
    x, _ = model.sample(60, seed=3)
    shares = expanded(model).smooth(x)
    fitted = model.fit(x, iterations=1, tolerance=None).parameters
    means = shares.T @ x / shares.sum(0)[:, None]
    np.testing.assert_allclose(fitted["means"].reshape(K * M, D), means, rtol=1e-8)
    counts = shares.sum(0).reshape(K, M)
    np.testing.assert_allclose(fitted["weights"], counts / counts.sum(1, keepdims=True), rtol=1e-8)


def test_samples_have_the_weights() -> None:
    model = mixture("spherical")
    p = model.parameters
    x, z = model.sample(40_000, seed=4)
    for k in range(K):
        np.testing.assert_allclose(x[z == k].mean(0), p["weights"][k] @ p["means"][k], atol=0.1)


def test_two_humps_need_two_components(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random(400) < 0.5, -4.0, 4.0) + rng.standard_normal(400)
    two = an.HMM(1, emissions="mixture", components=2).fit(x)
    assert two.bic(x) < an.HMM(1).fit(x).bic(x) - 100
    np.testing.assert_allclose(np.sort(two.parameters["means"].ravel()), [-4, 4], atol=0.3)
    two.save(tmp_path / "model")
    assert an.HMM.load(tmp_path / "model").log_likelihood(x) == two.log_likelihood(x)


def test_parameters_of_the_wrong_shape() -> None:
    with pytest.raises(SettingsError, match=r"means: has shape \(2, 2\)"):
        an.HMM(2, emissions="mixture", components=3).set(means=np.zeros((2, 2)))
    with pytest.raises(SettingsError, match="weights: every row"):
        an.HMM(1, emissions="mixture", components=2).set(weights=[[1, 1]])
