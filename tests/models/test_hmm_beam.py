"""Viterbi and posterior decoding with a beam: exact when it is wide, and what a narrow one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.models.classical.hmm import inference as hmm_inference
from anaphora.models.classical.hmm.inference import Beam


def model(seed: int, states: int, symbols: int = 4, forbidden: float = 0.0) -> an.HMM:
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.full(states, 0.5), states)
    A[rng.random(A.shape) < forbidden] = 0.0
    A[np.arange(states), np.arange(states)] += 1e-3
    return an.HMM(states, emissions="categorical").set(
        start=rng.dirichlet(np.ones(states)),
        transitions=A / A.sum(1, keepdims=True),
        probabilities=rng.dirichlet(np.ones(symbols), states),
    )


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000), states=st.integers(1, 7), length=st.integers(1, 20), forbidden=st.booleans()
)
def test_a_wide_beam_is_exact(seed: int, states: int, length: int, forbidden: bool) -> None:
    hmm = model(seed, states, forbidden=0.4 * forbidden)
    x = np.random.default_rng(seed).integers(0, 4, length)
    chain, steps = hmm._read([x, x[::-1].copy()])
    beam = Beam(states)
    exact, path = hmm_inference.viterbi(chain, steps)
    found, pruned_path = hmm_inference.viterbi_beam(chain, steps, beam)
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    np.testing.assert_array_equal(pruned_path, path)
    likelihood, gamma = hmm_inference.posteriors_beam(chain, steps, beam)
    right = hmm_inference.expectations(chain, steps)
    np.testing.assert_allclose(likelihood, right.log_likelihood, rtol=1e-9)
    np.testing.assert_allclose(gamma, right.gamma, atol=1e-9)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 5))
def test_a_narrow_beam_finds_paths_of_the_probability_it_says(seed: int, width: int) -> None:
    hmm = model(seed, 6)
    x = np.random.default_rng(seed).integers(0, 4, 15)
    chain, steps = hmm._read(x)
    (score,), path = hmm_inference.viterbi_beam(chain, steps, Beam(width))
    (best,), _ = hmm_inference.viterbi(chain, steps)
    p = hmm.parameters
    log_p = np.log(p["start"][path[0]]) + np.log(p["transitions"][path[:-1], path[1:]]).sum()
    assert score == pytest.approx(log_p + np.log(p["probabilities"][path, x]).sum())
    assert score <= best + 1e-9
    (mass,), gamma = hmm_inference.posteriors_beam(chain, steps, Beam(width))
    assert score - 1e-9 <= mass <= hmm.log_likelihood(x) + 1e-9
    np.testing.assert_allclose(gamma.sum(1), 1.0)
    assert ((gamma > 0).sum(1) <= width).all()


def test_the_first_step_may_mislead() -> None:
    # State 0 begins better, but only state 1 can show a 1 later.
    hmm = an.HMM(2, emissions="categorical").set(
        start=[0.9, 0.1],
        transitions=[[0.999, 0.001], [0.001, 0.999]],
        probabilities=[[0.99, 0.01], [0.5, 0.5]],
    )
    x = np.array([0, 1, 1, 1])
    assert hmm.predict(x).tolist() == hmm.predict(x, beam=2).tolist() == [1, 1, 1, 1]
    assert hmm.predict(x, beam=1).tolist() == [0, 0, 0, 0]
    assert hmm.predict(x, beam_distance=1.0).tolist() == [0, 0, 0, 0]
    assert hmm.predict(x, beam_distance=50.0).tolist() == [1, 1, 1, 1]
    assert hmm.predict(x, method="posterior", beam=2).tolist() == hmm.predict(x, method="posterior").tolist()
    assert [p.tolist() for p in hmm.predict([x, x[:1]], beam=1)] == [[0, 0, 0, 0], [0]]


@pytest.mark.parametrize("options", [{"beam": 0}, {"beam": 1.5}, {"beam": True}, {"beam_distance": 0.0}])
def test_what_is_no_beam(options: dict[str, float]) -> None:
    with pytest.raises(AnaphoraError, match="beam"):
        model(0, 3).predict(np.array([0, 1]), **options)  # type: ignore[arg-type]


def test_a_beam_that_loses_every_path_says_so() -> None:
    hmm = an.HMM(2, emissions="categorical").set(
        start=[0.9, 0.1], transitions=[[1.0, 0.0], [0.0, 1.0]], probabilities=[[1.0, 0.0], [0.5, 0.5]]
    )
    assert hmm.predict(np.array([0, 1])).tolist() == [1, 1]
    for method in ("viterbi", "posterior"):
        with pytest.raises(
            AnaphoraError, match="no path through the sequence is left in the beam; make it wider"
        ):
            hmm.predict(np.array([0, 1]), method=method, beam=1)
