"""Drawing from rows on a device: the symbols that the host would draw, with little leaving the device."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from anaphora.errors import AnaphoraError
from anaphora.search import _sample
from anaphora.search._draws import Filters, Wanted
from anaphora.search._sample import pick, pick_on_device

FILTERS = [
    Filters(), Filters(0.3), Filters(7.0), Filters(0.0), Filters(top_k=3), Filters(top_p=0.7),
    Filters(0.8, 50, 0.9), Filters(min_p=0.1), Filters(1e-300),
]  # fmt: skip


def rows(count: int, symbols: int, spread: float = 3.0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(symbols)
    return (spread * torch.randn(count, symbols, generator=draw)).log_softmax(-1)


def wanted(row: int, filters: Filters, seed: int, alternatives: int = 0) -> Wanted:
    return Wanted(row, np.random.default_rng(seed), filters, alternatives)


@pytest.mark.parametrize("symbols", [5, 256, 700, 3001])
@pytest.mark.parametrize("filters", FILTERS)
def test_device_and_host_draw_the_same(symbols, filters):
    table = rows(4, symbols)
    table[:, 1] = -math.inf
    for seed in range(20):
        asked = [
            (row, filters, 10 * seed + row, alternatives) for row in (0, 3, 3) for alternatives in (0, 2)
        ]
        host = pick(table, [wanted(*each) for each in asked])
        device = pick_on_device(table, [wanted(*each) for each in asked])
        for mine, other in zip(host, device, strict=True):
            assert (mine.symbol, mine.log_prob, mine.alternatives) == (
                other.symbol,
                other.log_prob,
                other.alternatives,
            )
            assert mine.q == pytest.approx(other.q, rel=1e-12)


def test_a_row_draws_the_same_alone_and_among_others():
    table = rows(9, 1000)
    mixed = [wanted(row, FILTERS[row % len(FILTERS)], row, row % 3) for row in range(9)]
    together = pick_on_device(table, mixed)
    for row in range(9):
        alone = pick_on_device(table[row : row + 1], [wanted(0, FILTERS[row % len(FILTERS)], row, row % 3)])
        assert alone == [together[row]]


def test_a_flat_row_with_a_filter_leaves_the_device_whole(monkeypatch):
    monkeypatch.setattr(_sample, "RANKS", 16)
    table = rows(2, 500, spread=0.01)
    for filters in (Filters(top_p=0.9), Filters(top_k=200), Filters(min_p=0.5)):
        host, device = (how(table, [wanted(1, filters, 3)]) for how in (pick, pick_on_device))
        assert host == device


def test_rows_without_a_symbol_or_with_nan_end_their_own_draw_alone():
    table = rows(3, 300)
    table[1] = -math.inf
    table[2, 7] = math.nan
    for how in (pick, pick_on_device):
        good, none, bad = how(table, [wanted(row, Filters(), 1) for row in range(3)])
        assert good.symbol >= 0
        assert none is None
        assert isinstance(bad, AnaphoraError)


def test_the_draws_follow_the_distribution():
    table = torch.tensor([[0.1, 0.0, 0.6, 0.3]]).log()
    chance = np.random.default_rng(0)
    drawn = [pick_on_device(table, [Wanted(0, chance, Filters(), 0)])[0].symbol for _ in range(2000)]
    shares = np.bincount(drawn, minlength=4) / 2000
    assert np.abs(shares - [0.1, 0.0, 0.6, 0.3]).max() < 0.04
    assert shares[1] == 0
