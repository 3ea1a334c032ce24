"""Rooms, microphones, other pitches and pauses: each changes what it says it changes, by as much, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from anaphora.data.audio.augment import noise
from anaphora.data.audio.frames import varied, varies_sound
from anaphora.data.audio.preprocessing import quiet
from anaphora.data.audio.rooms import colour, pause, pitch, reverberate, stretch
from anaphora.data.batches.pooled import random_of
from anaphora.errors import DataError
from anaphora.settings.sound import SoundSettings

RATE = 8000


def tone(hertz, seconds=1.0):
    return np.sin(2 * np.pi * hertz / RATE * np.arange(round(seconds * RATE))).astype(np.float32)


def loudest(wave):
    """The frequency (Hz) at which a sound is loudest."""
    spectrum = np.abs(np.fft.rfft(wave * np.hanning(len(wave))))
    return spectrum.argmax() * RATE / len(wave)


def strength(wave):
    return float(np.sqrt(np.mean(np.square(wave))))


@pytest.mark.parametrize("factor", [0.7, 0.9, 1.2, 1.6])
def test_stretching_changes_the_pace_and_not_the_pitch(factor):
    found = stretch(tone(200), factor, RATE)
    assert found.dtype == np.float32
    assert len(found) == round(RATE / factor)
    assert loudest(found) == pytest.approx(200, abs=4)
    assert strength(found[400:-400]) == pytest.approx(strength(tone(200)), rel=0.05)


def test_stretching_keeps_the_order_of_what_is_said():
    found = stretch(np.concatenate([tone(300, 0.5), tone(700, 0.5)]), 0.8, RATE)
    assert loudest(found[: len(found) // 2 - 400]) == pytest.approx(300, abs=6)
    assert loudest(found[len(found) // 2 + 400 :]) == pytest.approx(700, abs=6)
    np.testing.assert_array_equal(stretch(tone(200), 1.0, RATE), tone(200))
    assert len(stretch(tone(200, 0.01), 1.25, RATE)) == 64
    with pytest.raises(DataError, match="A pace of 3 is no speech any more"):
        stretch(tone(200), 3.0, RATE)


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_pitch_changes_and_the_pace_does_not(factor):
    found = pitch(tone(200), factor, RATE)
    assert abs(len(found) - RATE) <= 1
    assert loudest(found) == pytest.approx(200 * factor, abs=4)


def test_echoes_fade_by_60_db_and_are_as_strong_as_asked():
    click = np.zeros(RATE, np.float32)
    click[0] = 1
    heard = reverberate(click, 0.5, 0.25, RATE, random_of(1))
    assert heard[0] == pytest.approx(1, abs=1e-5)
    assert float(np.sum(heard[1:] ** 2)) == pytest.approx(0.25, rel=1e-3)
    # energy between 0 and 50 ms against 250 to 300 ms: half of the 60 dB
    early, late = np.sum(heard[1:400] ** 2), np.sum(heard[2000:2400] ** 2)
    assert 10 * np.log10(early / late) == pytest.approx(30, abs=2)
    assert not heard[4000:].any() or np.abs(heard[4000:]).max() < 1e-6
    np.testing.assert_array_equal(reverberate(click, 0.0, 0.5, RATE, random_of(1)), click)


def test_a_microphone_colours_within_its_decibels_and_does_not_move_sound():
    white = random_of(3).standard_normal(1 << 15).astype(np.float32)
    found = colour(white, 6.0, random_of(1))
    gain = 20 * np.log10(np.abs(np.fft.rfft(found)) / np.abs(np.fft.rfft(white)))
    middle = np.array([np.median(gain[a : a + 500]) for a in range(0, len(gain) - 500, 500)])
    assert np.abs(middle).max() < 6.1
    assert np.ptp(middle) > 1
    click = np.zeros(2001, np.float32)
    click[1000] = 1
    assert np.abs(colour(click, 6.0, random_of(1))).argmax() == 1000
    assert len(colour(click[:0], 6.0, random_of(1))) == 0


def test_noise_may_be_dull():
    silent_but_once = np.zeros(1 << 14, np.float32)
    silent_but_once[0] = 128.0  # strength 1
    added = noise(silent_but_once, 0.5, random_of(1), slope=2.0) - silent_but_once
    assert strength(added) == pytest.approx(0.5, rel=1e-3)
    power = np.abs(np.fft.rfft(added)) ** 2
    low, high = power[32:64].mean(), power[2048:4096].mean()
    assert 10 * np.log10(low / high) == pytest.approx(36, abs=3)  # 6 octaves of 6 dB


def test_pauses_are_as_quiet_as_the_sound_is():
    speech = np.concatenate([0.01 * tone(200, 0.3), tone(200, 0.7)])
    assert quiet(speech, RATE) == pytest.approx(0.01 / np.sqrt(2), rel=0.05)
    assert quiet(np.zeros(3, np.float32), RATE) == 0
    found = pause(0.1, 0.5, RATE, random_of(1))
    assert len(found) == 4000
    assert strength(found) == pytest.approx(0.1, rel=0.05)


def test_pauses_stand_before_between_and_after():
    s = SoundSettings(speed=0, pauses=0.5)
    ones = np.ones(800, np.float32)
    waves = [ones * 1000, ones * 2000]
    found = varied(waves, RATE, s, random_of(1, 2))
    places = [np.flatnonzero(found == value) for value in (1000, 2000)]
    # constant sounds have no quieter place, so the pauses are noise of their level, which never hits these values
    before, between = places[0][0], places[1][0] - places[0][-1] - 1
    after = len(found) - places[1][-1] - 1
    assert all(0 < n <= 4000 for n in (before, between, after))
    assert len(found) == 1600 + before + between + after


def test_what_is_not_asked_for_changes_nothing():
    s = SoundSettings(speed=0)
    assert not varies_sound(s)
    np.testing.assert_array_equal(varied([tone(200)], RATE, s, random_of(1)), tone(200))
    for name in ("pitch", "noise", "reverberation", "channel", "volume", "pauses"):
        given = SoundSettings(speed=0, **{name: 0.3})
        assert varies_sound(given)
        found = varied([tone(200)], RATE, given, random_of(1))
        assert found.dtype == np.float32
        assert found.shape != (RATE,) or (found != tone(200)).any()
    louder = varied([tone(200)], RATE, SoundSettings(speed=0, volume=12), random_of(1))
    assert abs(20 * np.log10(strength(louder) / strength(tone(200)))) < 12
