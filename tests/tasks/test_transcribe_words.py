"""Attention that keeps the order of speech: what going back costs, and the best way that never does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anaphora.tasks.transcribe.inference.words import in_order
from anaphora.tasks.transcribe.objective import going_back


@given(st.integers(0, 4), st.integers(1, 4), st.integers(0, 1000))
def test_the_best_way_forward_is_that_of_trying_all(symbols, frames, seed):
    weights = np.random.RandomState(seed).dirichlet(np.ones(frames), size=symbols).reshape(symbols, frames)
    ways = [
        way
        for way in itertools.product(range(frames), repeat=symbols)
        if all(a <= b for a, b in itertools.pairwise(way))
    ]
    found = in_order(weights)
    assert tuple(found) in ways

    def worth(way):
        return sum(np.log(weights[t, p]) for t, p in enumerate(way))

    assert worth(found) == pytest.approx(max(map(worth, ways)))


def test_a_symbol_that_looks_back_stays_with_its_neighbours():
    weights = np.array(
        [[0.9, 0.1, 0.0, 0.0], [0.0, 0.0, 0.9, 0.1], [0.6, 0.0, 0.4, 0.0], [0.0, 0.0, 0.1, 0.9]]
    )
    assert in_order(weights) == [0, 2, 2, 3]


def test_going_back_by_hand():
    weights = torch.tensor([[[1.0, 0, 0], [0, 0, 1.0], [0.5, 0.5, 0], [1.0, 0, 0]]])  # centres 0, 2, ½, 0
    everything = torch.ones(1, 4, dtype=torch.bool)
    assert going_back(weights, everything) == 1.5 + 0.5
    assert going_back(weights, torch.tensor([[True, True, True, False]])) == 1.5
    assert going_back(weights.flip(1)[:, 1:3], everything[:, :2]) == 0  # ½ then 2
