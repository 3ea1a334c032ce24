"""Variation: the same for the same generator, as wide and as strong as it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anaphora.data.audio.augment import SpecAugment, noise, speed
from anaphora.data.audio.features import LogMel
from anaphora.data.audio.warping import warp
from anaphora.data.batches.pooled import random_of
from anaphora.errors import DataError


@given(seed=st.integers(0, 1000), frames=st.integers(1, 80), features=st.integers(1, 20))
def test_holes_are_stretches_of_the_widths_that_were_asked_for(seed, frames, features):
    x = np.ones((frames, features), np.float32)
    found = SpecAugment(time_masks=1, time_width=10, frequency_masks=1, frequency_width=4)(
        x, random_of(1, seed)
    )
    assert (x == 1).all()
    hidden_frames = np.flatnonzero((found == 0).all(1)) if (found == 0).any() else np.array([])
    hidden_bands = np.flatnonzero((found == 0).all(0)) if (found == 0).any() else np.array([])
    for hidden, widest in ((hidden_frames, min(10, int(0.3 * frames))), (hidden_bands, min(4, features - 1))):
        assert len(hidden) <= widest
        assert not len(hidden) or len(hidden) == hidden[-1] - hidden[0] + 1
    again = SpecAugment(time_masks=1, time_width=10, frequency_masks=1, frequency_width=4)(
        x, random_of(1, seed)
    )
    np.testing.assert_array_equal(again, found)


def test_holes_come_everywhere():
    x = np.ones((50, 10), np.float32)
    hidden = sum(SpecAugment()(x, random_of(1, step, 7)) == 0 for step in range(400))
    assert hidden.min() > 0
    assert 0 < hidden.max() < 400


def test_speed_shortens_and_raises():
    n = np.arange(8000)
    tone = np.sin(2 * np.pi * 400 / 8000 * n).astype(np.float32)
    for factor, length in ((1.25, 6400), (0.9, 8889), (1.0, 8000)):
        found = speed(tone, factor)
        assert len(found) == length
        expected = np.sin(2 * np.pi * 400 * factor / 8000 * np.arange(length))
        np.testing.assert_allclose(found[200:-200], expected[200:-200], rtol=0, atol=1e-3)
    with pytest.raises(DataError, match=r"stay between 0\.5 and 2"):
        speed(tone, 3.0)


def test_noise_is_as_strong_as_it_says():
    tone = np.sin(0.1 * np.arange(40_000)).astype(np.float32)
    added = noise(tone, 0.1, random_of(1)) - tone
    assert added.dtype == np.float32
    # 40 000 normal numbers: their strength is within 2 % at six standard errors
    assert np.sqrt(np.mean(added**2)) == pytest.approx(0.1 * np.sqrt(0.5), rel=0.02)
    np.testing.assert_array_equal(noise(tone, 0.1, random_of(1)) - tone, added)
    assert len(noise(tone[:0], 0.1, random_of(1))) == 0


def test_a_longer_tract_lowers_what_resonates():
    features = LogMel(8000, bins=60)
    x = features(torch.sin(2 * np.pi * 1000 / 8000 * torch.arange(4000.0))[None])[0][0].numpy()
    for factor in (0.8, 1.0, 1.25):
        found = warp(x, factor, features.centres)
        assert found.dtype == np.float32
        peak = features.centres[int(found.mean(0).argmax())]
        assert peak == pytest.approx(1000 / factor, rel=0.04)
    np.testing.assert_allclose(warp(x, 1.0, features.centres), x, rtol=0, atol=1e-4)
    by_hand = warp(np.array([[0.0, 1.0, 4.0]], np.float32), 1.5, [100.0, 200.0, 300.0])
    # f₀ = 0.7 · 300 / 1.5 = 140: 100 → 150; 200 and 300 on the line from (140, 210) to (300, 300): 243.75 and 300
    np.testing.assert_allclose(by_hand, [[0.5, 1 + 3 * 0.4375, 4.0]], rtol=1e-6)
    with pytest.raises(DataError, match=r"times as long; stay between 0\.5 and 2"):
        warp(x, 3.0, features.centres)
