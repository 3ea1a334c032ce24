"""Pictures with known answers: CTC, Kalman, HMM, embeddings, positions, sampling, the beam tree."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.probe.classical import probe_hmm, probe_kalman
from anaphora.probe.ctc import probe_ctc
from anaphora.probe.seq2seq import search_tables
from anaphora.probe.trace import Trace
from anaphora.probe.vectors import probe_vectors
from anaphora.search import beam, ctc_loss
from anaphora.views.places import position_trace
from anaphora.views.projector import nearest
from anaphora.views.registry import picture
from anaphora.views.sampling import entropy, reshaped
from anaphora.views.tracking import coverage
from hand_made_tree import VOCABULARY, following


@given(st.integers(0, 10**6), st.lists(st.integers(1, 4), max_size=4), st.integers(0, 3))
def test_the_ctc_lattice_sums_to_the_likelihood(seed, target, room):
    needed = len(target) + sum(a == b for a, b in itertools.pairwise(target))
    logits = torch.tensor(np.random.default_rng(seed).normal(size=(max(needed, 1) + room, 5)))
    trace = probe_ctc(logits.numpy(), target)
    loss = ctc_loss(logits[None], torch.tensor([target], dtype=torch.long), reduction="none")
    assert trace.facts["log_likelihood"] == pytest.approx(-float(loss), rel=1e-6, abs=1e-6)
    np.testing.assert_allclose(trace.array("lattice").sum(1), 1, rtol=1e-9)


def test_the_best_path_of_ctc_collapses_to_the_target():
    rng = np.random.default_rng(0)
    trace = probe_ctc(rng.normal(size=(12, 5)), [2, 2, 4], symbols="-abcd")
    states = [trace.tokens["state"][s] for s in trace.array("best_path")]
    collapsed = [name for name, _ in itertools.groupby(states) if name != "-"]
    assert collapsed == ["b", "b", "d"]
    drawn = picture(trace, "ctc")
    assert "b b d" in drawn.text(100, colour=False)


@pytest.mark.parametrize(
    ("shape", "target", "told"),
    [
        ((2, 5), [1, 1], "at least 3"),
        ((4, 5), [0], "is the blank"),
        ((4, 5), [9], "no symbol"),
        ((0, 5), [1], "frame"),
    ],
)
def test_ctc_refuses_in_a_sentence(shape, target, told):
    with pytest.raises(AnaphoraError, match=told):
        probe_ctc(np.zeros(shape), target)


def test_the_kalman_band_covers_95_percent_of_what_the_model_draws():
    model = an.Kalman.local_level(level=0.3, noise=1.0, initial=1.0)
    inside = []
    for seed in range(4):
        _, y = model.sample(1000, seed=seed)
        inside.append(coverage(probe_kalman(model, y)))
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)


def test_kalman_numbers_are_the_filters_own():
    model = an.Kalman.local_level(level=0.5, noise=2.0, initial=3.0)
    y = np.array([1.0, 2.0, np.nan, 4.0])
    trace = probe_kalman(model, y)
    # one step by hand: the first expectation is 0 with variance 3 + 2
    assert trace.array("predicted")[0, 0] == 0
    assert trace.array("deviation")[0, 0] == pytest.approx(math.sqrt(5.0))
    assert trace.array("nis")[0] == pytest.approx(1.0 / 5.0)
    gain = 3 / 5
    assert trace.array("gain")[0, 0, 0] == pytest.approx(gain)
    assert trace.array("mean")[0, 0] == pytest.approx(gain * 1.0)
    assert trace.array("covariance")[0, 0, 0] == pytest.approx(3 * (1 - gain))
    assert trace.array("predicted")[1, 0] == pytest.approx(gain * 1.0)
    assert np.isnan(trace.array("nis")[2])
    assert "inside the 95 % band" in picture(trace, "kalman").text(90, colour=False)


def test_hmm_pictures_hold_brute_force_posteriors():
    model = an.HMM(2, emissions="categorical").set(
        start=[0.6, 0.4],
        transitions=[[0.7, 0.3], [0.2, 0.8]],
        probabilities=[[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]],
    )
    seen = [0, 2, 1, 2]
    start, follows = np.array([0.6, 0.4]), np.array([[0.7, 0.3], [0.2, 0.8]])
    says = np.array([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]])
    joint = {}
    for path in itertools.product((0, 1), repeat=4):
        p = start[path[0]] * says[path[0], seen[0]]
        for t in range(1, 4):
            p *= follows[path[t - 1], path[t]] * says[path[t], seen[t]]
        joint[path] = p
    total = sum(joint.values())
    trace = probe_hmm(model, seen, states=["wet", "dry"])
    for t in range(4):
        expected = sum(p for path, p in joint.items() if path[t] == 1) / total
        assert trace.array("smoothed", "time", "state")[t, 1] == pytest.approx(expected)
    assert tuple(trace.array("viterbi")) == max(joint, key=joint.get)
    assert trace.facts["log_likelihood"] == pytest.approx(math.log(total))
    assert "wet" in picture(trace, "hmm").svg()
    with pytest.raises(AnaphoraError, match="smoothed or filtered"):
        picture(trace, "hmm", by="guessing")


def test_projection_is_the_principal_components():
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(50, 6)) * np.array([5.0, 3.0, 1.0, 0.5, 0.1, 0.1])
    trace = probe_vectors([f"w{i}" for i in range(50)], matrix)
    covariance = np.cov(np.asarray(matrix, np.float32).T)
    values = np.sort(np.linalg.eigvalsh(covariance))[::-1]
    np.testing.assert_allclose(trace.array("projection").var(0, ddof=1), values[:3], rtol=1e-4)
    np.testing.assert_allclose(trace.array("spread").sum(), 1)


def test_analogies_are_told_with_and_without_their_own_words():
    words = ["king", "man", "woman", "queen", "tree"]
    # queen lies off the parallelogram, so that with all words allowed a word of the question is nearest
    matrix = [[4.0, 0.3, 0.3], [0.3, 0.2, 0.0], [0.3, 0.0, 0.2], [1.0, -2.5, 3.0], [0.0, -1.0, -3.0]]
    trace = probe_vectors(words, matrix)
    drawn = picture(trace, "embeddings", analogy="king,man,woman", word="king")
    (note,) = drawn.chart.notes
    assert note.endswith("woman with all words allowed, queen with the question's own left out")
    with pytest.raises(AnaphoraError, match="did you mean queen"):
        picture(trace, "embeddings", word="quen")
    with pytest.raises(AnaphoraError, match="three words"):
        picture(trace, "embeddings", analogy="king,man")


def test_nearest_by_cosine_against_brute_force():
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(30, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = nearest(vectors, vectors[7], {7}, 3)
    cosines = sorted(((float(v @ vectors[7]), i) for i, v in enumerate(vectors) if i != 7), reverse=True)
    assert [i for i, _ in found] == [i for _, i in cosines[:3]]


def test_likeness_of_sinusoids_depends_on_distance_alone():
    table = position_trace(length=40, width=32).array("positions", "step", "unit")
    products = table @ table.T
    for lag in (0, 1, 5, 20):
        assert np.ptp(np.diagonal(products, lag)) < 1e-9
    assert picture(position_trace("rotary"), "positions").svg().startswith("<svg")
    with pytest.raises(AnaphoraError, match="sinusoidal or rotary"):
        position_trace("counting")


def test_reshaping_by_hand():
    log_p = np.log(np.array([0.5, 0.25, 0.15, 0.1]))
    np.testing.assert_allclose(reshaped(log_p), [0.5, 0.25, 0.15, 0.1])
    np.testing.assert_allclose(reshaped(log_p, temperature=0.5), np.array([25, 6.25, 2.25, 1]) / 34.5)
    np.testing.assert_allclose(reshaped(log_p, top_k=2), [2 / 3, 1 / 3, 0, 0])
    np.testing.assert_allclose(reshaped(log_p, top_p=0.75), [2 / 3, 1 / 3, 0, 0])
    np.testing.assert_allclose(reshaped(log_p, top_p=0.76), np.array([0.5, 0.25, 0.15, 0]) / 0.9)
    np.testing.assert_allclose(reshaped(log_p, min_p=0.3), np.array([0.5, 0.25, 0.15, 0]) / 0.9)
    np.testing.assert_allclose(reshaped(log_p, temperature=0.0), [1, 0, 0, 0])
    assert entropy(np.array([0.5, 0.25, 0.25])) == pytest.approx(1.5)
    with pytest.raises(AnaphoraError, match="top_p"):
        reshaped(log_p, top_p=0.0)


def test_the_lab_draws_from_what_the_search_draws_from():
    from anaphora.search import sample

    log_p = np.sort(np.log(np.random.default_rng(5).dirichlet(np.ones(12))))[::-1].copy()
    options = {"temperature": 0.8, "top_k": 7, "top_p": 0.9}
    expected = reshaped(log_p, **options)
    table = torch.tensor(log_p, dtype=torch.float32)

    def step(symbols, state):
        return table.expand(len(symbols), -1), state

    (found,) = sample(step, None, start=torch.tensor([0]), eos=99, max_length=400, seeds=[1], **options)
    drawn = {token: math.exp(q) for token, q in zip(found[0].tokens, found[0].sampled, strict=True)}
    assert len(drawn) == int((expected > 0).sum())
    for token, share in drawn.items():
        assert share == pytest.approx(expected[token], rel=1e-5)


WORDS = ["<pad>", "<unk>", "<s>", "</s>", *VOCABULARY]


def tree_step(symbols, state):
    """The tree as a next-symbol model; ``state`` holds what was written, one row of ids per hypothesis."""
    grown = torch.cat([state, symbols[:, None]], 1)
    rows = []
    for history in grown.tolist():
        *words, end = following(" ".join(WORDS[i] for i in history if i > 3))
        rows.append([-math.inf] * 3 + [end, *words])
    return torch.tensor(rows), grown


def test_the_beam_tree_shows_every_hypothesis_with_its_score():
    start = torch.tensor([2])
    options = {"eos": 3, "width": 2, "max_length": 8, "length_penalty": 0.0, "n_best": 2, "keep_tree": True}
    (nbest,) = beam(tree_step, torch.zeros(1, 0, dtype=torch.long), start=start, **options)
    trace = Trace({}, {}, {}, search_tables(nbest, lambda ids: [WORDS[i] for i in ids]))
    drawn = picture(trace, "beam")
    nodes = drawn.chart.nodes

    def at(step, fate):
        return {n.piece: pytest.approx(n.score, abs=1e-5) for n in nodes if (n.step, n.fate) == (step, fate)}

    assert at(0, "kept") == {"he": -0.7, "I": -0.9}
    assert at(1, "kept") == {"was": -1.6, "hit": -1.7}
    assert at(1, "pruned") == {"got": -1.8, "struck": -2.9}
    assert at(2, "kept") == {"me": -2.5, "a": -2.8}
    assert at(5, "kept") == {"pie": -4.3, "tart": -4.6}
    was = next(n for n in nodes if n.piece == "was")
    assert nodes[was.parent].piece == "I"
    assert not was.best  # the way to the outputs went elsewhere
    assert [n.piece for n in nodes if n.best and n.fate == "kept"] == [
        "he",
        "hit",
        "me",
        "with",
        "a",
        "pie",
        "tart",
    ]
    assert drawn.chart.outputs[0] == ("he hit me with a pie", pytest.approx(-4.3, abs=1e-5))
    assert "I → was" in drawn.text(80, colour=False)


def test_a_forecast_is_drawn_for_each_target_with_its_interval(tmp_path):
    t = np.arange(80.0)
    table = {"sales": 50 + t + 5 * np.sin(t / 12 * 2 * np.pi), "cost": 20 + 0.1 * t + np.cos(t / 3)}
    m = an.Forecaster("median", horizon=6).fit(table)
    trace = m.probe(table)
    drawn = trace.view("forecast")
    found = m.predict(table, interval=0.95)
    assert ".probe('TEXT')" in drawn.code  # not of the words that say which series it was
    charts = drawn.chart.charts
    assert [chart.title for chart in charts] == ["sales", "cost"]
    for at, chart in enumerate(charts):
        observed, ahead = chart.lines
        assert observed.y == list(table.values())[at].tolist()
        np.testing.assert_allclose(ahead.y, found.mean[:, at])
        np.testing.assert_allclose(chart.bands[0].low, found.low[:, at])
        np.testing.assert_allclose(chart.bands[0].high, found.high[:, at])
        assert ahead.x == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert [chart.title for chart in trace.view("forecast", output=2).chart.charts] == ["cost"]
    with pytest.raises(AnaphoraError, match="outputs 1 to 2, not 3"):
        trace.view("forecast", output=3)
