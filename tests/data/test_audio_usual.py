"""Normalisation with what is usual: right for long recordings, careful with short ones, and the same as sound arrives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.data.audio.usual import WEIGHT, Usual, levelled


def frames(count, seed=0, shift=0.0):
    draw = np.random.RandomState(seed)
    return (shift + np.array([1.0, -2.0, 0.5]) + np.array([1.0, 2.0, 0.5]) * draw.randn(count, 3)).astype(
        np.float32
    )


USUAL = Usual.of([frames(4000), frames(3000, 1)], "running")


def test_what_is_usual_is_the_mean_and_deviation_of_all_frames():
    np.testing.assert_allclose(USUAL.mean, [1, -2, 0.5], atol=0.1)
    np.testing.assert_allclose(USUAL.deviation, [1, 2, 0.5], rtol=0.05)


def test_a_frame_is_normalised_by_hand():
    usual = Usual(np.array([1.0], np.float32), np.array([2.0], np.float32))
    # one frame of 5 beside 100 of mean 1 and variance 4: μ = 105/101, E x² = (100 · 5 + 25)/101
    mean = (WEIGHT + 5) / (WEIGHT + 1)
    variance = (WEIGHT * 5 + 25) / (WEIGHT + 1) - mean**2
    (found,) = usual.running()(np.array([[5.0]], np.float32))
    assert found[0] == pytest.approx((5 - mean) / np.sqrt(variance), rel=1e-5)


def test_long_recordings_count_for_themselves_and_short_ones_hardly():
    other = frames(6000, 2, shift=4.0)
    late = USUAL.running()(other)[3000:]
    np.testing.assert_allclose(late.mean(0), 0, atol=0.25)
    short = USUAL.running()(other[:5])
    np.testing.assert_allclose(short.mean(0), 4 / USUAL.deviation, rtol=0.5)


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 40), max_size=5), seed=st.integers(0, 99))
def test_pieces_give_what_the_whole_gives(cuts, seed):
    x = frames(40, seed)
    whole, running = USUAL.running()(x), USUAL.running()
    places = [0, *sorted(cuts), 40]
    parts = [running(x[a:b]) for a, b in itertools.pairwise(places)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-5)


def test_the_level_of_a_recording_does_not_matter_where_it_is_adapted():
    usual = Usual.of([frames(500)], "adapted")
    x = frames(60, 3)
    np.testing.assert_allclose(usual.adapted(x), usual.adapted(x + 7), atol=1e-4)
    assert usual.adapted(x).dtype == np.float32
    assert usual.adapted(x[:0]).shape == (0, 3)
    assert abs(float(levelled(x + 7).mean()) - float(levelled(x).mean())) < 1e-4
