"""What a model hears of a recording, and how training varies it: by chance, but the same chance every time."""

from __future__ import annotations

import numpy as np
import pytest

from anaphora.data.audio.frames import HIGHEST, Ear, make_features, normalised
from anaphora.data.audio.recordings_readers import as_item, open_recordings
from anaphora.errors import DataError, SettingsError
from anaphora.tasks.registry import TASKS, resolve


def sound(seconds=0.5, rate=8000):
    t = np.arange(int(seconds * rate)) / rate
    return (np.sin(2 * np.pi * 440 * t) + 0.3 * np.sin(2 * np.pi * 1200 * t * t)).astype(np.float32)


def heard(**given):
    s = resolve(TASKS["transcribe"], given)
    data = open_recordings([((sound(), 8000), "a")], features=lambda own: make_features(s, own))
    return data, Ear.learn(s, data)


def test_stretched_bands_are_those_of_log_mel():
    with pytest.raises(SettingsError, match="warp stretches the bands of log-mel, which mfcc does not have"):
        resolve(TASKS["transcribe"], {"warp": 0.1, "features": "mfcc"})


def test_frames_have_mean_0_and_variance_1_and_silence_stays_silent():
    x = normalised(np.random.RandomState(0).uniform(3, 9, (50, 4)).astype(np.float32), "features")
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(x.std(0), 1, atol=1e-4)
    assert not normalised(np.full((5, 3), 7.0, np.float32), "features").any()
    np.testing.assert_array_equal(normalised(np.array([[1.0], [5.0]]), "means"), [[-2], [2]])


def test_variance_or_all_but_the_level_is_kept_where_asked_for():
    _, plain = heard(bins=20)
    _, wide = heard(bins=20, normalise="means")
    _, whole = heard(bins=20, normalise="level")
    item = as_item((sound(), 8000), 1, 8000)
    np.testing.assert_allclose(plain.hear(item).std(0), 1, atol=1e-3)
    assert wide.hear(item).std(0).max() > 1.5
    x = whole.hear(item)
    assert abs(x.mean()) < 1e-4
    assert abs(x.std() - 1) < 1e-3
    assert np.abs(x.mean(0)).max() > 0.2  # the shape of its spectrum is still there


@pytest.mark.parametrize(
    "given", [{"speed": 0.2}, {"warp": 0.2, "speed": 0}, {"noise": 0.5, "speed": 0}, {"speed": 0}]
)
def test_chances_follow_from_seed_epoch_and_number_alone(given):
    data, ear = heard(bins=20, **given)
    first = ear.vary(data, 0, 1, 0, 0)
    np.testing.assert_array_equal(first, ear.vary(data, 0, 1, 0, 0))
    for place in ((2, 0, 0), (1, 1, 0), (1, 0, 1)):
        other = ear.vary(data, 0, *place)
        assert other.shape != first.shape or (other != first).any()


def test_without_variation_training_hears_what_prediction_hears():
    data, ear = heard(bins=20, speed=0, masks=0)
    np.testing.assert_array_equal(ear.vary(data, 0, 1, 0, 0), ear.hear(as_item((sound(), 8000), 1, 8000)))


@pytest.mark.parametrize(
    ("own", "given", "rate"), [(8000, {}, 8000), (44100, {}, HIGHEST), (8000, {"rate": 11025}, 11025)]
)
def test_the_rate_is_that_of_the_data_up_to_what_speech_needs(own, given, rate):
    assert make_features(resolve(TASKS["transcribe"], given), own).rate == rate


def test_mfcc_take_the_same_road():
    data, ear = heard(features="mfcc", bins=13)
    assert (ear.width, ear.vary(data, 0, 1, 0, 0).shape[1]) == (13, 13)


def test_frames_are_not_sound():
    _, ear = heard()
    with pytest.raises(DataError, match="not sound"):
        ear.hear(as_item(np.zeros((5, 40), np.float32), 1, 8000))
