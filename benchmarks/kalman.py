"""The Kalman filter with smoother against statsmodels (and dynamax). Run: python benchmarks/kalman.py [--json] [--times N]

One process, one thread, both sides in turn, the least of N times; 4 states, 2 outputs, float64. Both sides must give
the same means and likelihood before they are timed. The peers are not installed with us: ``pip install statsmodels``
and, for the batch in one call, ``pip install dynamax``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import anaphora as an
from rows import against, row, show
from turns import milliseconds


def model() -> an.Kalman:
    """A point in the plane with its velocity, of which the place is seen."""
    A = 0.99 * np.array([[1, 0, 0.1, 0], [0, 1, 0, 0.1], [0, 0, 1, 0], [0, 0, 0, 1]])
    return an.Kalman(A, np.eye(2, 4), 0.1 * np.eye(4), 0.5 * np.eye(2), covariance=np.eye(4))


def peer_smoother(own: an.Kalman) -> Callable[[np.ndarray], Any]:
    from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

    p = own.parameters

    def smooth(y: np.ndarray) -> Any:
        peer = KalmanSmoother(k_endog=2, k_states=4)
        peer["design"], peer["obs_cov"], peer["transition"] = p["C"], p["R"], p["A"]
        peer["selection"], peer["state_cov"] = np.eye(4), p["Q"]
        peer.initialize_known(p["mean"], p["covariance"])
        peer.bind(np.asfortranarray(y.T))
        return peer.smooth()

    return smooth


def same(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours.mean, theirs.smoothed_state.T, atol=1e-6)
    np.testing.assert_allclose(ours.log_likelihood, theirs.llf, rtol=1e-8)


def against_statsmodels(times: int) -> list[dict[str, Any]]:
    own = model()
    smooth = peer_smoother(own)
    rows = []
    _, long = own.sample(10_000, seed=0)
    holes = long.copy()
    holes[np.random.default_rng(0).random(long.shape) < 0.1] = np.nan
    for name, y, goal in (("1×10 000", long, 3.5), ("1×10 000, a tenth missing", holes, 3.0)):
        same(own.smooth(y), smooth(y))
        mine, peers = milliseconds(lambda y=y: own.smooth(y), lambda y=y: smooth(y), times)
        rows.append(row(f"Kalman smoother, {name}", "statsmodels", mine, peers, "ms", goal=goal))
    _, batch = own.sample(200, series=1000, seed=1)
    found = own.smooth(batch)
    np.testing.assert_allclose(found.mean[7], smooth(batch[7]).smoothed_state.T, atol=1e-6)
    mine, peers = milliseconds(
        lambda: own.smooth(batch), lambda: [smooth(y) for y in batch], max(2, times // 5)
    )
    rows.append(row("Kalman smoother, 1000×200", "statsmodels in a loop", mine, peers, "ms", goal=100.0))
    return rows


def against_dynamax(times: int) -> list[dict[str, Any]]:
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    own = model()
    p = own.parameters
    peer = LinearGaussianSSM(4, 2)
    parameters, _ = peer.initialize(
        initial_mean=jnp.array(p["mean"]),
        initial_covariance=jnp.array(p["covariance"]),
        dynamics_weights=jnp.array(p["A"]),
        dynamics_covariance=jnp.array(p["Q"]),
        emission_weights=jnp.array(p["C"]),
        emission_covariance=jnp.array(p["R"]),
    )
    _, batch = own.sample(200, series=1000, seed=1)
    theirs_in = jnp.array(batch)

    @jax.jit
    def smooth(ys: Any) -> Any:
        def one(y: Any) -> Any:
            posterior = peer.smoother(parameters, y)
            return posterior.smoothed_means, posterior.smoothed_covariances, posterior.marginal_loglik

        return jax.vmap(one)(ys)

    means, _, likelihoods = jax.block_until_ready(smooth(theirs_in))
    found = own.smooth(batch)
    np.testing.assert_allclose(found.mean, np.asarray(means), atol=1e-6)
    np.testing.assert_allclose(found.log_likelihood, np.asarray(likelihoods), rtol=1e-8)
    mine, peers = milliseconds(
        lambda: own.smooth(batch), lambda: jax.block_until_ready(smooth(theirs_in)), times
    )
    return [row("Kalman smoother, 1000×200", "dynamax, float64, compiled", mine, peers, "ms", goal=1.3)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=15)
    options = parser.parse_args()
    rows = against("statsmodels", lambda: against_statsmodels(options.times))
    rows += against("dynamax", lambda: against_dynamax(options.times))
    show(rows, as_json=options.json)


if __name__ == "__main__":
    main()
