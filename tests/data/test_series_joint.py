"""Chords drawn key by key, and how often each key sounds, against all chords there are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from anaphora.data.series_ahead import Chain
from anaphora.nn import NADE


def made(targets=4, units=6):
    torch.manual_seed(5)
    nade = NADE(targets, units).double()
    bias, shift = torch.randn(targets).double(), torch.randn(units).double()
    with torch.no_grad():
        nade.inward.mul_(4)
    chain = Chain(nade.inward.detach().numpy(), nade.outward.detach().numpy())
    return nade, bias, shift, chain, torch.cat([bias, shift]).numpy()


def chances(nade, bias, shift):
    """All chords (2ⁿ, n) and their probabilities (2ⁿ,)."""
    n = len(bias)
    chords = torch.tensor(list(itertools.product((0.0, 1.0), repeat=n))).double()
    with torch.no_grad():
        p = nade(bias.expand(2**n, -1), shift.expand(2**n, -1), chords).sigmoid()
    return chords.numpy(), torch.where(chords > 0, p, 1 - p).prod(-1).numpy()


def test_chords_come_as_often_as_they_should():
    nade, bias, shift, chain, parts = made()
    chords, exact = chances(nade, bias, shift)
    many = 20000
    drawn = chain.drawn(np.tile(parts, (many, 1)), np.random.default_rng(2).random((many, 4)))
    found = [(drawn == chord).all(axis=1).mean() for chord in chords]
    assert np.abs(np.array(found) - exact).max() < 4 * np.sqrt(0.25 / many)


def test_rates_are_near_the_exact_ones_and_the_first_is_exact():
    nade, bias, shift, chain, parts = made()
    chords, exact = chances(nade, bias, shift)
    wanted = exact @ chords
    found = chain.rates(parts)
    assert found[0] == pytest.approx(wanted[0], abs=1e-12)
    assert np.abs(found - wanted).max() < 0.02
    assert np.abs(1 / (1 + np.exp(-parts[:4])) - wanted).max() > 0.05  # not what the biases alone say


def test_rates_do_not_depend_on_what_else_is_asked():
    *_, chain, parts = made()
    several = chain.rates(np.stack([parts, -parts, parts])[:, None])
    assert several.shape == (3, 1, 4)
    np.testing.assert_array_equal(several[0], several[2])
    np.testing.assert_allclose(several[0, 0], chain.rates(parts), rtol=0, atol=1e-12)
