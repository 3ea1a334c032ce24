"""A chain and a prefix search written out, against all sequences enumerated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.probe.chain import Chain
from anaphora.search import ctc_beam
from anaphora.search.ctc._prefixes import ctc_prefixes


def chain(draws, places=4, labels=3):
    return Chain(
        draws.normal(size=(places, labels)),
        draws.normal(size=(labels, labels)),
        draws.normal(size=labels),
        draws.normal(size=labels),
    )


def scores(one):
    places, labels = one.emissions.shape
    found = {}
    for path in itertools.product(range(labels), repeat=places):
        total = one.start[path[0]] + one.end[path[-1]] + sum(one.emissions[t, y] for t, y in enumerate(path))
        found[path] = total + sum(one.moves[a, b] for a, b in itertools.pairwise(path))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_chain_is_the_sum_over_all_sequences(seed):
    draws = np.random.default_rng(seed)
    one = chain(draws)
    one.moves[0, 1] = -np.inf
    every = scores(one)
    total = np.logaddexp.reduce(list(every.values()))
    marginals, found = one.marginals()
    assert found == pytest.approx(total)
    for t, label in itertools.product(range(4), range(3)):
        share = sum(np.exp(s - total) for path, s in every.items() if path[t] == label)
        assert marginals[t, label] == pytest.approx(share)
    path, score = one.best()
    assert (tuple(path), score) == (max(every, key=every.get), pytest.approx(max(every.values())))


def test_a_chain_with_nothing_left_is_an_error():
    one = chain(np.random.default_rng(0))
    one.moves[:] = -np.inf
    with pytest.raises(an.AnaphoraError, match="no sequence of labels is left"):
        one.marginals()
    with pytest.raises(an.AnaphoraError, match="no sequence of labels is left"):
        one.best()


def collapsed(path):
    return tuple(symbol for symbol, _ in itertools.groupby(path) if symbol)


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_prefix_search_adds_up_all_paths(seed):
    log_p = np.random.default_rng(seed).normal(size=(4, 3))
    log_p -= np.logaddexp.reduce(log_p, axis=1, keepdims=True)
    _, frames = ctc_prefixes(log_p, blank=0, width=10_000)
    every = {}
    for path in itertools.product(range(3), repeat=4):
        ends = every.setdefault(collapsed(path), [-np.inf, -np.inf])
        score = sum(log_p[t, s] for t, s in enumerate(path))
        ends[path[-1] != 0] = np.logaddexp(ends[path[-1] != 0], score)
    assert {one.labels for one in frames[-1].kept} == set(every)
    for one in frames[-1].kept:
        assert (one.blank, one.label) == pytest.approx(tuple(every[one.labels]))


def test_a_narrow_prefix_search_finds_what_the_decoder_finds():
    draws = torch.randn(1, 12, 6, generator=torch.Generator().manual_seed(3)).log_softmax(-1)
    _, frames = ctc_prefixes(draws[0].double().numpy(), blank=0, width=4)
    (found,) = ctc_beam(draws, width=4, n_best=4)
    assert [list(one.labels) for one in frames[-1].kept] == [list(h.tokens) for h in found]
    assert [one.total for one in frames[-1].kept] == pytest.approx([h.score for h in found], abs=1e-5)
    assert all(len(frame.kept) <= 4 for frame in frames)
