"""The recursions against the sum over all paths of states, written out."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anaphora as an
from anaphora.errors import DataError
from anaphora.models.classical.hmm import passes as kernels


def rows(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.dirichlet(np.ones(shape[-1]), shape[:-1])


def categorical(seed: int = 0, states: int = 3, symbols: int = 4) -> an.HMM:
    rng = np.random.default_rng(seed)
    return an.HMM(states, emissions="categorical").set(
        start=rows(rng, 1, states)[0],
        transitions=rows(rng, states, states),
        probabilities=rows(rng, states, symbols),
    )


def gaussian(kind: str, seed: int = 0, states: int = 3, width: int = 2) -> an.HMM:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((states, width, width))
    full = root @ root.swapaxes(1, 2) + 0.3 * np.eye(width)
    covariances = {
        "full": full,
        "tied": full[0],
        "diagonal": rng.uniform(0.5, 2, (states, width)),
        "spherical": rng.uniform(0.5, 2, states),
    }
    return an.HMM(states, covariance=kind).set(
        start=rows(rng, 1, states)[0],
        transitions=rows(rng, states, states),
        means=rng.standard_normal((states, width)),
        covariances=covariances[kind],
    )


def matrix(model: an.HMM, k: int) -> np.ndarray:
    """State k's covariance, from the shape each kind has."""
    c, width = model.parameters["covariances"], model.parameters["means"].shape[1]
    kind = model.settings.covariance
    return {
        "full": lambda: c[k],
        "tied": lambda: c,
        "diagonal": lambda: np.diag(c[k]),
        "spherical": lambda: c[k] * np.eye(width),
    }[kind]()


def likelihood(model: an.HMM, k: int, seen: Any) -> float:
    """p(x_t | z_t = k), leaving out what is missing."""
    p = model.parameters
    if "probabilities" in p:
        return 1.0 if seen < 0 else float(p["probabilities"][k, seen])
    there = ~np.isnan(seen)
    off, c = (seen - p["means"][k])[there], matrix(model, k)[np.ix_(there, there)]
    return float(np.exp(-0.5 * off @ np.linalg.inv(c) @ off) / np.sqrt(np.linalg.det(2 * np.pi * c)))


def joint(model: an.HMM, x: np.ndarray) -> dict[tuple[int, ...], float]:
    """p(x, z) for every path z."""
    p = model.parameters
    K = len(p["start"])
    table = {}
    for z in itertools.product(range(K), repeat=len(x)):
        value = p["start"][z[0]]
        for i, j in itertools.pairwise(z):
            value *= p["transitions"][i, j]
        for k, seen in zip(z, x, strict=True):
            value *= likelihood(model, k, seen)
        table[z] = value
    return table


SYMBOLS = np.array([0, 3, -1, 2, 1])
VECTORS = np.array([[0.1, -1.0], [np.nan, 0.5], [1.5, 0.2], [np.nan, np.nan], [-0.3, np.nan]])
KINDS = ("categorical", "full", "tied", "diagonal", "spherical")


def example(kind: str) -> tuple[an.HMM, np.ndarray]:
    return (categorical(), SYMBOLS) if kind == "categorical" else (gaussian(kind), VECTORS)


@pytest.mark.parametrize("kind", KINDS)
def test_likelihood_filter_and_posteriors_are_sums_over_paths(kind: str) -> None:
    model, x = example(kind)
    paths = joint(model, x)
    assert model.log_likelihood(x) == pytest.approx(np.log(sum(paths.values())), abs=1e-12)
    posteriors = np.zeros((len(x), 3))
    for z, p in paths.items():
        posteriors[np.arange(len(x)), z] += p
    np.testing.assert_allclose(model.smooth(x), posteriors / sum(paths.values()), atol=1e-12)
    np.testing.assert_array_equal(model.predict(x, method="posterior"), posteriors.argmax(1))
    for t in range(len(x)):  # filtering is smoothing of what was seen until then
        np.testing.assert_allclose(model.filter(x)[t], model.smooth(x[: t + 1])[-1], atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_viterbi_and_the_k_best_are_the_greatest_of_all_paths(kind: str) -> None:
    model, x = example(kind)
    best = sorted(joint(model, x).items(), key=lambda item: -item[1])
    found = model.viterbi(x, k=10)
    assert [tuple(path) for _, path in found] == [z for z, _ in best[:10]]
    np.testing.assert_allclose([score for score, _ in found], np.log([p for _, p in best[:10]]), atol=1e-12)
    [(score, path)] = model.viterbi(x)
    assert tuple(path) == best[0][0]
    assert score == pytest.approx(np.log(best[0][1]))
    np.testing.assert_array_equal(model.predict(x), path)


def test_two_coins_worked_by_hand() -> None:
    """A fair coin and one that always shows heads (symbol 0), kept with 0.9."""
    model = an.HMM(2, emissions="categorical").set(
        start=[0.5, 0.5], transitions=[[0.9, 0.1], [0.1, 0.9]], probabilities=[[0.5, 0.5], [1.0, 0.0]]
    )
    # fair-fair .5·.5·.9·.5 = .1125; fair-false .5·.5·.1·1 = .025; false-fair .5·1·.1·.5 = .025; false-false .45
    assert np.exp(model.log_likelihood([0, 0])) == pytest.approx(0.1125 + 0.025 + 0.025 + 0.45)
    np.testing.assert_allclose(model.smooth([0, 0])[0], [0.1375 / 0.6125, 0.475 / 0.6125])
    assert model.predict([0, 1]).tolist() == [0, 0]


def test_fewer_paths_than_asked_for() -> None:
    model = an.HMM(2, emissions="categorical", topology="left-to-right").set(
        start=[1, 0], transitions=[[0.5, 0.5], [0, 1]], probabilities=[[0.5, 0.5], [0.5, 0.5]]
    )
    found = model.viterbi([0, 1, 0], k=9)
    assert sorted(tuple(path) for _, path in found) == [(0, 0, 0), (0, 0, 1), (0, 1, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_many_sequences_are_done_one_by_one(kind: str) -> None:
    model, x = example(kind)
    data = [x, x[:1], x[2:]]
    np.testing.assert_allclose(
        model.log_likelihood(data), [model.log_likelihood(s) for s in data], rtol=1e-14
    )
    for together, alone in zip(model.smooth(data), map(model.smooth, data), strict=True):
        np.testing.assert_allclose(together, alone, rtol=1e-13)
    for together, alone in zip(model.predict(data), map(model.predict, data), strict=True):
        np.testing.assert_array_equal(together, alone)


def test_a_missing_symbol_is_summed_over() -> None:
    model = categorical()
    filled = [model.log_likelihood([0, v, 2]) for v in range(4)]
    assert model.log_likelihood([0, -1, 2]) == pytest.approx(np.logaddexp.reduce(filled), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_missing_entry_is_integrated_over(kind: str) -> None:
    model = gaussian(kind)
    grid = np.linspace(-15, 15, 3001)
    data = [np.array([[0.3, 0.1], [v, -0.4], [1.0, 1.0]]) for v in grid]
    integral = np.exp(model.log_likelihood(data)).sum() * (grid[1] - grid[0])
    missing = model.log_likelihood(np.array([[0.3, 0.1], [np.nan, -0.4], [1.0, 1.0]]))
    assert missing == pytest.approx(np.log(integral), abs=1e-6)


def test_a_long_sequence_neither_underflows_nor_drifts() -> None:
    model = categorical()
    x, _ = model.sample(50_000, seed=1)
    gamma = model.smooth(x)
    np.testing.assert_allclose(gamma.sum(1), 1, atol=1e-9)
    assert np.isfinite(model.log_likelihood(x))


def test_what_underflows_is_done_in_logarithms() -> None:
    """The only way goes through a state 300 deviations off, while a state that cannot be reached fits perfectly."""
    model = an.HMM(3, topology="left-to-right").set(
        start=[1, 0, 0],
        transitions=[[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]],
        means=[[0.0], [5.0], [300.0]],
        covariances=np.ones((3, 1)),
    )
    x = np.array([300.0, 0.0, 300.0])

    def log_density(value: float, mean: float) -> float:
        return -0.5 * np.log(2 * np.pi) - 0.5 * (value - mean) ** 2

    paths = {(0, 0, 0): 0.25, (0, 0, 1): 0.25, (0, 1, 1): 0.25, (0, 1, 2): 0.25}
    means = [0.0, 5.0, 300.0]
    logs = {
        z: np.log(p) + sum(log_density(v, means[k]) for v, k in zip(x, z, strict=True))
        for z, p in paths.items()
    }
    assert model.log_likelihood(x) == pytest.approx(np.logaddexp.reduce(list(logs.values())), rel=1e-14)
    np.testing.assert_allclose(model.smooth(x), [[1, 0, 0], [0, 1, 0], [0, 0, 1]], atol=1e-12)
    np.testing.assert_allclose(model.filter(x)[0], [1, 0, 0], atol=1e-12)
    assert model.predict(x).tolist() == [0, 1, 2]


@given(seed=st.integers(0, 10_000), length=st.integers(1, 12), states=st.integers(1, 4))
def test_the_scaled_and_the_exact_recursion_agree(seed: int, length: int, states: int) -> None:
    model = categorical(seed, states)
    x, _ = model.sample(length, seed=seed)
    p = model.parameters
    log_b = np.log(p["probabilities"].T[x])
    gamma, filtered, pairs = np.empty_like(log_b), np.empty_like(log_b), np.zeros((states, states))
    found = kernels.exact(log_b, np.log(p["start"]), np.log(p["transitions"]), filtered, gamma, pairs)
    assert found == pytest.approx(model.log_likelihood(x), rel=1e-12)
    np.testing.assert_allclose(gamma, model.smooth(x), atol=1e-10)
    np.testing.assert_allclose(np.exp(filtered), model.filter(x), atol=1e-10)
    assert pairs.sum() == pytest.approx(length - 1)


def test_an_impossible_sequence() -> None:
    model = an.HMM(2, emissions="categorical").set(
        start=[0.5, 0.5], transitions=np.full((2, 2), 0.5), probabilities=[[1, 0], [1, 0]]
    )
    assert model.log_likelihood([0, 1]) == -np.inf
    np.testing.assert_array_equal(np.isinf(model.log_likelihood([[0], [1]])), [False, True])
    for method in (model.smooth, model.filter, model.predict, model.viterbi):
        with pytest.raises(DataError, match="sequence 1 has probability 0"):
            method([[0, 0], [0, 1]])


def test_samples_have_the_frequencies_of_the_model() -> None:
    model = categorical(3)
    p = model.parameters
    x, z = model.sample(40_000, seed=5)
    for k in range(3):
        after = z[1:][z[:-1] == k]
        np.testing.assert_allclose(
            np.bincount(after, minlength=3) / len(after), p["transitions"][k], atol=0.02
        )
        shown = np.bincount(x[z == k], minlength=4) / (z == k).sum()
        np.testing.assert_allclose(shown, p["probabilities"][k], atol=0.02)
    again, _ = model.sample(40_000, seed=5)
    np.testing.assert_array_equal(x, again)
    x, z = gaussian("full").sample(40_000, seed=5)
    for k in range(3):
        np.testing.assert_allclose(np.cov(x[z == k].T), matrix(gaussian("full"), k), rtol=0.1, atol=0.1)


def test_n_states_remember_only_log_n_bits() -> None:
    """One of 4 symbols, a gap, the same symbol again: 4 states carry its 2 bits across, 2 states carry 1 at most."""
    symbols, gap = 4, 5

    def carrier(states: int) -> an.HMM:
        kept = np.arange(symbols) * states // symbols
        shown = np.array([kept == k for k in range(states)], dtype=float)
        return an.HMM(states, emissions="categorical").set(
            start=np.full(states, 1 / states),
            transitions=np.eye(states),
            probabilities=shown / shown.sum(1, keepdims=True),
        )

    def bits(model: an.HMM) -> float:
        """I(first; last) = H(last) − H(last | first), from the likelihoods of all pairs."""
        pairs = list(itertools.product(range(symbols), repeat=2))
        p = np.exp(model.log_likelihood([[a, *[-1] * gap, b] for a, b in pairs])).reshape(symbols, symbols)
        independent = p.sum(1, keepdims=True) * p.sum(0)
        return float((p[p > 0] * np.log2(p[p > 0] / independent[p > 0])).sum())

    assert [bits(carrier(states)) for states in (1, 2, 4)] == pytest.approx([0, 1, 2])
    for seed in range(20):  # and no two-state model carries more
        assert bits(categorical(seed, states=2)) <= 1
