"""Ensembles and shallow fusion against enumeration; minimum Bayes risk by hand and by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_search_beam import BOS, EOS, NEXT, as_step, bigram, whole_history
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search import Hypothesis, Step, beam, ensemble, fuse, mbr, ngram_f, sample

START = torch.tensor([BOS])


def best_by_enumeration(model: NEXT, length: int) -> tuple[float, list[int]]:
    """The best log p of a finished sequence of at most `length` symbols with EOS."""
    found = []
    for size in range(length):
        for tokens in itertools.product([1, 2, 3, 4], repeat=size):
            whole = (*tokens, EOS)
            found.append((sum(model(whole[:t])[whole[t]] for t in range(len(whole))), list(tokens)))
    return max(found)


def mixed(models: list[NEXT], weights: list[float], average: str) -> NEXT:
    """The formulas of `ensemble` in numpy."""

    def row(history: tuple[int, ...]) -> list[float]:
        table = np.array([model(history) for model in models])
        w = np.array(weights)[:, None] / sum(weights)
        if average == "probabilities":
            return list(np.log((w * np.exp(table)).sum(0)))
        p = np.exp((w * table).sum(0))
        return list(np.log(p / p.sum()))

    return row


@pytest.mark.parametrize("average", ["probabilities", "log-probabilities"])
@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [3.0, 1.0, 0.5]])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_over_an_ensemble_finds_what_enumeration_finds(
    average: str, weights: list[float], seed: int
) -> None:
    models = [whole_history(seed), bigram(seed + 50), whole_history(seed + 99)]
    step, state = ensemble(
        [as_step([m]) for m in models],
        None if weights == [1.0] * 3 else weights,
        average=average,  # type: ignore[arg-type]
    )
    found = beam(step, state, start=START, eos=EOS, width=700, max_length=5, length_penalty=0.0)[0][0]
    log_prob, tokens = best_by_enumeration(mixed(models, weights, average), 5)
    assert found.tokens == tokens
    assert found.log_prob == pytest.approx(log_prob, abs=1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_with_fusion_finds_what_enumeration_finds(weight: float, seed: int) -> None:
    model, lm = whole_history(seed), bigram(seed + 50)

    def both(history: tuple[int, ...]) -> list[float]:
        return [p + weight * q for p, q in zip(model(history), lm(history), strict=True)]

    step, state = fuse(as_step([model]), as_step([lm]), weight)
    found = beam(step, state, start=START, eos=EOS, width=700, max_length=5, length_penalty=0.0)[0][0]
    log_prob, tokens = best_by_enumeration(both, 5)
    assert found.tokens == tokens
    assert found.log_prob == pytest.approx(log_prob, abs=1e-12)


def constant(row: list[float]) -> tuple[Step, None]:
    return lambda symbols, state: (torch.tensor([row]).log().expand(len(symbols), -1), state), None


def test_one_member_makes_possible_or_forbids() -> None:
    """p = (½, ½, 0) and (0, ½, ½): the mean allows all three symbols, the log-mean only the middle one."""
    members = [constant([0.5, 0.5, 0.0]), constant([0.0, 0.5, 0.5])]
    step, state = ensemble(members)
    assert step(START, state)[0].exp().tolist() == [pytest.approx([0.25, 0.5, 0.25])]
    step, state = ensemble(members, average="log-probabilities")
    assert step(START, state)[0].exp().tolist() == [pytest.approx([0.0, 1.0, 0.0])]
    never = [constant([1.0, 0.0]), constant([0.0, 1.0])]
    step, state = ensemble(never, average="log-probabilities")
    assert step(START, state)[0].tolist() == [[-math.inf, -math.inf]]
    step, state = fuse(never[0], never[1], 0.0)
    assert step(START, state)[0].tolist() == [[0.0, -math.inf]]


def test_an_ensemble_of_one_changes_nothing_and_combinations_nest() -> None:
    models = [whole_history(seed) for seed in range(8)]
    start = torch.full((8,), BOS)
    step, state = as_step(models)
    plain = beam(step, state, start=start, eos=EOS, max_length=6)
    step, state2 = ensemble([as_step(models), as_step(models)], average="log-probabilities")
    step, state3 = fuse((step, state2), as_step(models), 0.0)
    again = beam(step, state3, start=start, eos=EOS, max_length=6)
    assert [nbest[0].tokens for nbest in again] == [nbest[0].tokens for nbest in plain]
    assert again[3][0].score == pytest.approx(plain[3][0].score, abs=1e-12)
    drawn = sample(step, state3, start=start, eos=EOS, max_length=6, seeds=range(8))
    assert len(drawn) == 8


def test_half_precision_members_are_averaged_in_single() -> None:
    def half(symbols: Tensor, state: None) -> tuple[Tensor, None]:
        return torch.tensor([[-0.5, -1.0]], dtype=torch.bfloat16), state

    step, state = ensemble([(half, None), (half, None)])
    assert step(START, state)[0].dtype == torch.float32


def test_mistakes_are_said_in_a_sentence() -> None:
    one, two = constant([0.5, 0.5]), constant([0.2, 0.3, 0.5])
    with pytest.raises(AnaphoraError, match="one weight for each"):
        ensemble([])
    with pytest.raises(AnaphoraError, match="one weight for each"):
        ensemble([one, one], [1.0])
    with pytest.raises(AnaphoraError, match="above 0"):
        ensemble([one, one], [1.0, 0.0])
    with pytest.raises(AnaphoraError, match="average"):
        ensemble([one], average="median")  # type: ignore[arg-type]
    with pytest.raises(AnaphoraError, match="weight"):
        fuse(one, one, -0.1)
    step, state = fuse(one, two, 0.5)
    with pytest.raises(AnaphoraError, match="one vocabulary"):
        step(START, state)
    with pytest.raises(AnaphoraError, match="at least one"):
        mbr([])


def drawn(*outputs: list[int]) -> list[Hypothesis]:
    return [Hypothesis(tokens, -1.0, -1.0, [], True) for tokens in outputs]


def test_ngram_f_by_hand() -> None:
    """abc and abd: 2 of 3 letters and 1 of 2 pairs agree, P = R = (2/3 + 1/2) / 2."""
    assert ngram_f("abc", "abd", order=2) == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert ngram_f("aab", "ab", order=1) == pytest.approx(2 * (2 / 3) / (2 / 3 + 1))  # P = 2/3, R = 1
    assert ngram_f("aab", "ab", order=1, beta=2) == pytest.approx(5 * (2 / 3) / (4 * 2 / 3 + 1))
    assert ngram_f("ab", "ab") == ngram_f("", "") == 1.0
    assert ngram_f("ab", "cd") == ngram_f("", "a") == ngram_f("a", "") == 0.0


@given(a=st.text("ab", max_size=8), b=st.text("ab", max_size=8))
def test_ngram_f_is_symmetric_and_1_only_for_equal_counts(a: str, b: str) -> None:
    assert ngram_f(a, b) == pytest.approx(ngram_f(b, a))
    assert 0 <= ngram_f(a, b) <= 1 + 1e-12
    assert ngram_f(a, a) == pytest.approx(1.0)
    if len(a) != len(b):
        assert ngram_f(a, b) < 1


def test_the_output_in_the_middle_wins_over_the_most_frequent_one() -> None:
    """Three wordings share a core; the odd one out was drawn most often but agrees with nothing."""
    found = mbr(drawn([9, 9], [1, 2, 3], [1, 2, 4], [9, 9], [1, 2, 3, 4], [5, 1, 2, 3]))
    assert found[0].tokens == [1, 2, 3]
    assert len(found) == 5
    assert {tuple(h.tokens) for h in found} >= {(9, 9), (1, 2, 4)}


@settings(max_examples=60)
@given(outputs=st.lists(st.lists(st.integers(1, 3), max_size=4), min_size=1, max_size=12))
def test_mbr_equals_brute_force(outputs: list[list[int]]) -> None:
    def utility(a: object, b: object) -> float:
        return -sum((x != y) + 0.25 * (x > y) for x, y in itertools.zip_longest(a, b, fillvalue=0))  # type: ignore[call-overload]

    for measure in (utility, ngram_f):
        found = mbr(drawn(*outputs), None if measure is ngram_f else measure)
        expected = {tuple(a): sum(measure(a, b) for b in outputs) / len(outputs) for a in outputs}
        assert {tuple(h.tokens): h.score for h in found} == pytest.approx(expected)
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert found[0].score == pytest.approx(max(expected.values()))
