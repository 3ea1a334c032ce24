"""Energies in C against their formula in numpy, for every size of transform, and against torch operations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.data.audio.features import MFCC, LogMel
from anaphora.ops import sound

pytestmark = pytest.mark.skipif(sound.library.functions() is None, reason="no C compiler here")


def bank_of(size, points, bins, random):
    """Any window, and filters that hear a few frequencies each, with holes."""
    filters = np.zeros((points // 2 + 1, bins))
    for m in range(bins):
        begin = random.randint(points // 2 + 1)
        stretch = filters[begin : begin + 1 + random.randint(8), m]
        stretch[:] = random.uniform(0.1, 1, len(stretch)) * (random.uniform(size=len(stretch)) < 0.7)
        stretch[0] = 1
    window = random.uniform(0.2, 1, size)
    return window, filters, sound.Bank.of(torch.from_numpy(window), torch.from_numpy(filters))


def by_the_book(x, before, end, hop, factor, window, filters):
    """E (T, bins) of one sound with the Fourier sum written as a sum."""
    size, points = len(window), 2 * (len(filters) - 1)
    emphasised = x - factor * np.concatenate(([before], x[:-1]))
    emphasised[end:] = 0
    emphasised = np.pad(emphasised, (0, max(size - len(x), 0)))
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(points // 2 + 1), np.arange(size)) / points)
    begins = range(0, len(emphasised) - size + 1, hop)
    return np.array([filters.T @ np.abs(fourier @ (window * emphasised[b : b + size])) ** 2 for b in begins])


@pytest.mark.parametrize("points", [2**k for k in range(1, 12)])
def test_every_power_of_two(points):
    random = np.random.RandomState(points)
    size = points if points < 8 else points - 3
    window, filters, bank = bank_of(size, points, 5, random)
    x = random.standard_normal((1, size + 20))
    found = sound.energies(torch.from_numpy(x), torch.ones(1, 1), None, 2, 0.5, bank)
    expected = by_the_book(x[0], 1.0, x.shape[1], 2, 0.5, window, filters)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found[0].numpy(), expected, rtol=1e-6, atol=1e-9)


@settings(max_examples=60)
@given(
    size=st.integers(1, 40),
    hop=st.integers(1, 50),
    samples=st.integers(1, 120),
    rows=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_any_sizes_rows_and_ends(size, hop, samples, rows, seed):
    random = np.random.RandomState(seed)
    points = max(2, 2 ** math.ceil(math.log2(size)))
    window, filters, bank = bank_of(size, points, 1 + seed % 7, random)
    x, before = random.standard_normal((rows, samples)), random.standard_normal((rows, 1))
    ends = random.randint(0, samples + 1, rows)
    arguments = torch.from_numpy(x), torch.from_numpy(before), torch.from_numpy(ends)
    found = sound.energies(*arguments, hop, 0.97, bank)
    for row in range(rows):
        expected = by_the_book(x[row], before[row, 0], ends[row], hop, 0.97, window, filters)
        np.testing.assert_allclose(found[row].numpy(), expected, rtol=1e-6, atol=1e-9)


def test_threads_and_neighbours_do_not_change_a_bit():
    random = np.random.RandomState(0)
    _, _, bank = bank_of(200, 256, 20, random)
    x = torch.from_numpy(random.standard_normal((3, 20_000)))

    def energies(x, threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return sound.energies(x, torch.zeros(len(x), 1), None, 80, 0.97, bank)
        finally:
            torch.set_num_threads(before)

    alone = energies(x, 1)
    assert torch.equal(energies(x, 3), alone)
    assert torch.equal(energies(x[1:2], 1), alone[1:2])
    x[1, 8000:8010] = math.nan  # is heard where it is, and by no frame beside it
    spoilt = energies(x, 2)
    assert torch.equal(spoilt[0], alone[0])
    assert spoilt[1].isnan().any(-1).nonzero().flatten().tolist() == list(range(98, 101))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"rate": 8000, "bins": 23, "preemphasis": 0.0},
        {"rate": 11_025, "bins": 30, "low": 0.0, "high": 4000.0},
        {"rate": 22_050, "window": 0.0464, "hop": 0.0116, "bins": 100},
        {"rate": 16_000, "window": 0.01, "hop": 0.02, "bins": 10},
        {"rate": 1000, "window": 0.003, "hop": 0.001, "bins": 1, "low": 0.0},
    ],
)
def test_features_without_a_compiler_are_the_same(given, monkeypatch):
    random = np.random.RandomState(1)
    waves = torch.from_numpy(random.standard_normal((3, 5000)).astype(np.float32))
    lengths = torch.tensor([5000, 90, 3001])
    for features in (LogMel(**given), MFCC(**given, count=1)):
        ours, frames = features(waves, lengths)
        with monkeypatch.context() as without:
            without.setattr(sound.library, "functions", lambda *_: None)
            plain, counted = features(waves, lengths)
        assert frames.tolist() == counted.tolist()
        np.testing.assert_allclose(ours.numpy(), plain.numpy(), rtol=0, atol=1e-5)
