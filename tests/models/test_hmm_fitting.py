"""Fitting: Baum-Welch, labels, priors, fixed parts, topologies, the number of states."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anaphora as an

KINDS = ("diagonal", "full", "tied", "spherical")


def vectors(seed: int = 0, lengths: tuple[int, ...] = (30, 1, 17), missing: float = 0.0) -> list[np.ndarray]:
    """Three well-separated clusters in two dimensions, in runs; some entries missing."""
    rng = np.random.default_rng(seed)
    data = []
    for n in lengths:
        z = rng.integers(0, 3, n // 5 + 1).repeat(5)[:n]
        x = rng.standard_normal((n, 2)) + 4 * z[:, None]
        x[rng.random(x.shape) < missing] = np.nan
        data.append(x)
    return data


def symbols(seed: int = 0, lengths: tuple[int, ...] = (30, 1, 17), missing: float = 0.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    data = [rng.integers(0, 2, n) + 2 * (np.arange(n) // 5 % 2) for n in lengths]
    return [np.where(rng.random(len(x)) < missing, -1, x) for x in data]


def rising(history: list[float]) -> bool:
    return bool((np.diff(history) >= -1e-9 * np.abs(history[-1])).all())


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(("categorical", *KINDS)),
    components=st.sampled_from((0, 2)),
    states=st.integers(1, 4),
    missing=st.sampled_from((0.0, 0.3)),
    prior=st.sampled_from((0.0, 0.5)),
    topology=st.sampled_from(("ergodic", "left-to-right")),
    fixed=st.sampled_from(((), ("start", "transitions"))),
)
def test_the_likelihood_never_falls(
    seed: int,
    kind: str,
    components: int,
    states: int,
    missing: float,
    prior: float,
    topology: str,
    fixed: tuple[str, ...],
) -> None:
    data = symbols(seed, missing=missing) if kind == "categorical" else vectors(seed, missing=missing)
    how: dict[str, Any] = {"emissions": "categorical"} if kind == "categorical" else {"covariance": kind}
    if components and kind != "categorical":
        how |= {"emissions": "mixture", "components": components}
    priors = {"start_prior": prior, "transition_prior": prior, "emission_prior": prior}
    model = an.HMM(states, topology=topology, seed=seed, **how, **priors)
    if fixed:
        allowed = np.triu(np.ones((states, states))) * np.tril(np.ones((states, states)), 1)
        A = allowed if topology == "left-to-right" else np.ones((states, states))
        start = np.eye(states)[0] if topology == "left-to-right" else np.full(states, 1 / states)
        model.set(start=start, transitions=A / A.sum(1, keepdims=True))
    model.fit(data, iterations=15, tolerance=None, fixed=fixed)
    assert len(model.history) == 16
    assert rising(model.history)
    p = model.parameters
    np.testing.assert_allclose(p["transitions"].sum(1), 1)
    if not prior:
        assert model.history[-1] == pytest.approx(np.sum(model.log_likelihood(data)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_one_step_of_em_is_the_weighted_moments(kind: str, missing: float) -> None:
    """The M-step against its definition on filled-in data, state by state."""
    data = vectors(3, missing=missing)
    before = an.HMM(2, covariance=kind).fit(data, iterations=2, tolerance=None)
    p = before.parameters
    gamma = np.concatenate(before.smooth(data))
    model = an.HMM(2, covariance=kind).set(**p).fit(data, iterations=1, tolerance=None)
    np.testing.assert_allclose(
        model.parameters["start"], np.mean([g[0] for g in before.smooth(data)], axis=0), atol=1e-10
    )
    if missing:
        assert rising(model.history)
        return
    x = np.concatenate(data)
    means = gamma.T @ x / gamma.sum(0)[:, None]
    np.testing.assert_allclose(model.parameters["means"], means, rtol=1e-9)
    full = np.array([((x - m).T * g) @ (x - m) / g.sum() for m, g in zip(means, gamma.T, strict=True)])
    expected = {
        "full": full,
        "tied": np.einsum("k,kij->ij", gamma.sum(0), full) / len(x),
        "diagonal": np.array([np.diag(c) for c in full]),
        "spherical": np.array([np.diag(c).mean() for c in full]),
    }[kind]
    np.testing.assert_allclose(model.parameters["covariances"], expected, rtol=1e-8)


def test_it_finds_the_model_that_made_the_data() -> None:
    truth = an.HMM(2, covariance="full").set(
        start=[0.5, 0.5],
        transitions=[[0.9, 0.1], [0.2, 0.8]],
        means=[[0, 0], [3, 1]],
        covariances=[np.eye(2), [[1, 0.5], [0.5, 1]]],
    )
    data = [truth.sample(400, seed=s)[0] for s in range(8)]
    model = an.HMM(2, covariance="full").fit(data, restarts=2)
    assert model.converged
    p = model.parameters
    order = np.argsort(p["means"][:, 0])
    np.testing.assert_allclose(p["means"][order], truth.parameters["means"], atol=0.15)
    np.testing.assert_allclose(p["covariances"][order], truth.parameters["covariances"], atol=0.15)
    np.testing.assert_allclose(p["transitions"][order][:, order], truth.parameters["transitions"], atol=0.05)
    assert model.history[-1] >= np.sum(truth.log_likelihood(data))


def test_restarts_keep_the_best() -> None:
    data = symbols(1, lengths=(60, 60))
    alone = [an.HMM(3, emissions="categorical").fit(data, iterations=20).history[-1]]
    best = an.HMM(3, emissions="categorical").fit(data, iterations=20, restarts=4).history[-1]
    assert best >= alone[0]
    again = an.HMM(3, emissions="categorical").fit(data, iterations=20, restarts=4).history
    assert again[-1] == best


def test_labels_for_every_step_are_counts() -> None:
    """Worked by hand: states 0 0 1 | 1 0, symbols a b b | b a, one added count for each event."""
    model = an.HMM(
        2, emissions="categorical", symbols=3, start_prior=1, transition_prior=1, emission_prior=1
    ).fit([[0, 1, 1], [1, 0]], labels=[[0, 0, 1], [1, 0]])
    p = model.parameters
    np.testing.assert_allclose(p["start"], [1 / 2, 1 / 2])
    np.testing.assert_allclose(p["transitions"], [[2 / 4, 2 / 4], [2 / 3, 1 / 3]])
    np.testing.assert_allclose(p["probabilities"], [[3 / 6, 2 / 6, 1 / 6], [1 / 5, 3 / 5, 1 / 5]])
    assert model.converged


def test_full_covariances_with_labels_and_missing_entries() -> None:
    data = vectors(2, missing=0.2)
    labels = [np.arange(len(x)) % 2 for x in data]
    model = an.HMM(2, covariance="full").fit(data, labels=labels, iterations=30)
    assert rising(model.history)


def test_some_labels_name_the_states() -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(0, 3, 100).repeat(4)
    x = rng.standard_normal((400, 2)) + 5 * z[:, None]
    labels = np.where(rng.random(400) < 0.05, 2 - z, -1)  # a naming that order would not give
    model = an.HMM(3).fit(x, labels=labels)
    assert rising(model.history)
    assert (model.predict(x) == 2 - z).mean() > 0.98


def test_a_label_holds_where_it_is_given() -> None:
    """The likelihood that is maximised is that of the data with its labels."""
    data, labels = symbols(5, lengths=(12,)), [np.array([1, -1, 0, *[-1] * 9])]
    model = an.HMM(2, emissions="categorical").fit(data, labels=labels, iterations=3, tolerance=None)
    p = model.parameters
    total = 0.0
    for path in np.ndindex(*(2,) * 12):
        if path[0] == 1 and path[2] == 0:
            value = p["start"][path[0]] * np.prod(
                [p["transitions"][i, j] for i, j in itertools.pairwise(path)]
            )
            total += value * np.prod([p["probabilities"][k, v] for k, v in zip(path, data[0], strict=True)])
    assert model.history[-1] == pytest.approx(np.log(total))


def test_fixed_parts_stay_and_the_rest_moves() -> None:
    data = vectors()
    A = np.array([[0.7, 0.3], [0.4, 0.6]])
    model = an.HMM(2).set(transitions=A, means=[[0, 0], [4, 4]]).fit(data, fixed=("transitions", "means"))
    np.testing.assert_array_equal(model.parameters["transitions"], A)
    np.testing.assert_array_equal(model.parameters["means"], [[0, 0], [4, 4]])
    assert rising(model.history)
    kept = an.HMM(2).set(**model.parameters).fit(data, fixed="emissions", iterations=3)
    for name in ("means", "covariances"):
        np.testing.assert_array_equal(kept.parameters[name], model.parameters[name])


def test_a_fitted_model_can_be_changed_in_part() -> None:
    model = an.HMM(2).fit(vectors())
    before = model.parameters
    after = model.set(transitions=[[0.5, 0.5], [0.5, 0.5]]).parameters
    assert (after["transitions"] == 0.5).all()
    np.testing.assert_array_equal(after["means"], before["means"])


def test_left_to_right_keeps_its_shape() -> None:
    rng = np.random.default_rng(0)
    data = [np.repeat([0.0, 5.0, 10.0], n)[:, None] + rng.standard_normal((3 * n, 1)) for n in (5, 8, 6)]
    model = an.HMM(3, topology="left-to-right", transition_prior=0.1).fit(data)
    p = model.parameters
    assert (p["transitions"][[0, 1, 2, 2], [2, 0, 0, 1]] == 0).all()
    assert p["start"].tolist() == [1, 0, 0]
    np.testing.assert_allclose(p["means"][:, 0], [0, 5, 10], atol=1)
    assert [path.tolist() for path in model.predict(data)] == [[0] * n + [1] * n + [2] * n for n in (5, 8, 6)]


def test_a_state_without_data_keeps_rows_that_sum_to_one() -> None:
    model = an.HMM(3, emissions="categorical").set(
        start=[1, 0, 0],
        transitions=[[1, 0, 0], [0.2, 0.3, 0.5], [0, 0, 1]],
        probabilities=[[0.5, 0.5], [0.1, 0.9], [1, 0]],
    )
    model.fit([[0, 1, 1]], iterations=3)
    np.testing.assert_allclose(model.parameters["transitions"][1], [0.2, 0.3, 0.5])
    np.testing.assert_allclose(model.parameters["probabilities"][0], [1 / 3, 2 / 3])


@pytest.mark.parametrize("kind", KINDS)
def test_a_variance_never_falls_below_its_least(kind: str) -> None:
    x = np.repeat(
        [[0.0, 1.0], [5.0, 5.0]], 10, axis=0
    )  # two points: without a limit the likelihood is infinite
    model = an.HMM(2, covariance=kind, min_covariance=0.01).fit(x)
    assert rising(model.history)
    c = model.parameters["covariances"]
    least = np.linalg.eigvalsh(c).min() if kind in {"full", "tied"} else c.min()
    assert least == pytest.approx(0.01)


def test_bic_finds_the_number_of_states() -> None:
    truth = an.HMM(2).set(
        start=[0.5, 0.5], transitions=[[0.8, 0.2], [0.2, 0.8]], means=[[0], [4]], covariances=[[1], [1]]
    )
    data = [truth.sample(300, seed=s)[0] for s in range(3)]
    models = {k: an.HMM(k).fit(data, restarts=2) for k in (1, 2, 3)}
    assert min(models, key=lambda k: models[k].bic(data)) == 2
    assert models[2].free_parameters == 1 + 2 + 2 + 2
    expected = -2 * models[2].history[-1] + 7 * np.log(900)
    assert models[2].bic(data) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["categorical", "diag", "full", "tied", "spherical"])
def test_em_step_by_step_with_hmmlearn(kind: str) -> None:
    peers = pytest.importorskip("hmmlearn.hmm")
    data = symbols(lengths=(40, 25)) if kind == "categorical" else vectors(lengths=(40, 25))
    joined, lengths = np.concatenate(data), [len(x) for x in data]
    how: dict[str, Any] = {"covariance": {"diag": "diagonal"}.get(kind, kind)}
    start = an.HMM(3, **({"emissions": "categorical"} if kind == "categorical" else how)).fit(
        data, iterations=1, tolerance=None
    )
    p = start.parameters
    for iterations in (1, 2, 5):
        common: dict[str, Any] = {"n_iter": iterations, "tol": -np.inf, "init_params": ""}
        if kind == "categorical":
            ours = an.HMM(3, emissions="categorical").set(**p)
            peer = peers.CategoricalHMM(3, n_features=4, **common)
            peer.emissionprob_, joined = p["probabilities"].copy(), joined.reshape(-1, 1)
        else:
            ours = an.HMM(3, **how).set(**p)
            peer = peers.GaussianHMM(3, covariance_type=kind, covars_prior=0, covars_weight=1, **common)
            peer.means_, peer.covars_ = p["means"].copy(), p["covariances"].copy()
        peer.startprob_, peer.transmat_ = p["start"].copy(), p["transitions"].copy()
        ours.fit(data, iterations=iterations, tolerance=None)
        peer.fit(joined, lengths)
        assert ours.history[-1] == pytest.approx(peer.score(joined, lengths), abs=1e-6 * len(joined))
        np.testing.assert_allclose(ours.parameters["transitions"], peer.transmat_, atol=1e-6)
        np.testing.assert_allclose(
            np.concatenate(ours.smooth(data)), peer.predict_proba(joined, lengths), atol=1e-6
        )
        np.testing.assert_array_equal(np.concatenate(ours.predict(data)), peer.predict(joined, lengths))
