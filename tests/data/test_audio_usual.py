"""Normalisation with what is usual: right for long recordings, careful with short ones, and the same as sound arrives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.data.audio.preprocessing import WEIGHT, Usual, levelled


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
    np.testing.assert_allclose(late.mean(0), 0, atol=0.35)  # its quietest frames are pauses
    short = USUAL.running()(other[:5])
    np.testing.assert_allclose(short.mean(0), 4 / USUAL.deviation, rtol=0.5)


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 40), max_size=5), seed=st.integers(0, 99))
def test_pieces_give_what_the_whole_gives(cuts, seed):
    x = frames(40, seed)
    whole, running = USUAL.running()(x), USUAL.running()
    places = [0, *sorted(cuts), 40]
    parts = [running(x[a:b]) for a, b in itertools.pairwise(places)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def spoken(count, seed=0, level=0.0):
    """Log energies of 20 bands that get loud and quiet together, by 2 nats, around −4."""
    draw = np.random.RandomState(seed)
    return (level - 4 + 2 * draw.randn(count, 1).clip(-1.5, 1.5) + 0.5 * draw.randn(count, 20)).astype(
        np.float32
    )


SPEECH = Usual.of([spoken(3000)], "running")


@pytest.mark.parametrize("level", [-23.0, -14.0])
@pytest.mark.parametrize("before", [0, 200])
def test_pauses_do_not_decide_what_speech_is_measured_by(level, before):
    said, silence = spoken(200, 5), np.full((3000, 20), level, np.float32)
    expected = SPEECH.running()(np.concatenate((spoken(before, 4), said)))[before:]
    found = SPEECH.running()(np.concatenate((spoken(before, 4), silence, said)))[-200:]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_silence_falls_away_when_a_voice_towers_over_it():
    running = SPEECH.running()
    running(np.full((500, 20), -12.0, np.float32))  # the loudest so far: it counts
    assert running.sounding.all()
    said = spoken(400, 6)
    found = running(said)
    np.testing.assert_allclose(found[300:], SPEECH.running()(said)[300:], atol=0.05)
    running(np.full((5, 20), -12.0, np.float32))
    assert not running.sounding.any()


def test_a_quiet_recording_is_measured_by_itself():
    quiet = spoken(2000, 7, level=-7.0)  # 30 dB
    found = SPEECH.running()(quiet)[1000:].mean()
    assert abs(found) < 0.75  # instead of −3.5: its quietest frames are pauses


def test_another_voice_is_followed_soon():
    slow, soon = SPEECH.running(), SPEECH.running()
    for running in (slow, soon):
        running(spoken(5000, 8))
    soon.fade(50)
    other = spoken(300, 9, level=3.0)
    late, early = (running(other)[200:].mean() for running in (slow, soon))
    assert early < 0.6 * late


def test_a_single_noise_does_not_hide_speech_forever():
    running = SPEECH.running()
    running(np.full((10, 20), 18.0, np.float32))
    running(spoken(50, 1))
    assert not running.sounding.any()
    for _ in range(12):
        running.fade(50)
    running(spoken(50, 1))
    assert running.sounding.mean() > 0.5


def test_the_level_of_a_recording_does_not_matter_where_it_is_adapted():
    usual = Usual.of([frames(500)], "adapted")
    x = frames(60, 3)
    np.testing.assert_allclose(usual.adapted(x), usual.adapted(x + 7), atol=1e-4)
    assert usual.adapted(x).dtype == np.float32
    assert usual.adapted(x[:0]).shape == (0, 3)
    assert abs(float(levelled(x + 7).mean()) - float(levelled(x).mean())) < 1e-4
