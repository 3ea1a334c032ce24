"""What a model hears of a recording, and how training varies it: by chance, but the same chance every time."""

from __future__ import annotations

import numpy as np
import pytest

import anaphora as an
from anaphora.data.audio.frames import HIGHEST, Ear, make_features, normalised
from anaphora.data.audio.recordings_readers import as_item, open_recordings
from anaphora.errors import DataError, SettingsError
from anaphora.runtime.sound import normalised as exported
from anaphora.tasks.registry import TASKS, resolve
from anaphora.tasks.transcribe.inference.arriving import hears_as_it_arrives


def sound(seconds=0.5, rate=8000):
    t = np.arange(int(seconds * rate)) / rate
    return (np.sin(2 * np.pi * 440 * t) + 0.3 * np.sin(2 * np.pi * 1200 * t * t)).astype(np.float32)


def heard(**given):
    s = resolve(TASKS["transcribe"], given)
    data = open_recordings([((sound(), 8000), "a")], features=lambda own: make_features(s, own))
    return data, Ear.learn(s, data)


def test_stretched_bands_are_those_of_log_mel():
    with pytest.raises(
        SettingsError, match="warp stretches the bands of log-mel and mfcc, which samples does"
    ):
        resolve(TASKS["transcribe"], {"model": "wav2vec2", "warp": 0.1})


def test_mfcc_are_warped_by_way_of_the_spectrum_they_describe():
    _, bands = heard(
        features="mfcc", bins=40, normalise="none"
    )  # as many coefficients as bands: nothing is smoothed
    _, mel = heard(bins=40, normalise="none")
    item = as_item((sound(), 8000), "input 1", 8000)
    cosines = bands.features.transform.numpy()
    np.testing.assert_allclose(bands.hear(item, 1.1), mel.hear(item, 1.1) @ cosines, rtol=1e-3, atol=1e-2)
    _, few = heard(features="mfcc", bins=13, normalise="none")
    np.testing.assert_allclose(few._warped(few.hear(item), 1.0), few.hear(item), rtol=1e-3, atol=1e-2)


def test_the_level_is_the_first_coefficient_alone():
    data, ear = heard(features="mfcc", bins=13, normalise="adapted")
    rough = sound() + 0.1 * np.random.RandomState(0).randn(4000).astype(np.float32)  # no band is empty
    loud, quiet = (ear.hear(as_item((rough * gain, 8000), 1, 8000)) for gain in (1.0, 0.05))
    np.testing.assert_allclose(loud, quiet, atol=0.02)
    assert (ear.width, ear.vary(data, [0], 1, 0, 0).shape[1]) == (13, 13)


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
    item = as_item((sound(), 8000), "input 1", 8000)
    np.testing.assert_allclose(plain.hear(item).std(0), 1, atol=1e-3)
    assert wide.hear(item).std(0).max() > 1.5
    x = whole.hear(item)
    assert abs(x.mean()) < 1e-4
    assert abs(x.std() - 1) < 1e-3
    assert np.abs(x.mean(0)).max() > 0.2  # the shape of its spectrum is still there


@pytest.mark.parametrize(
    "given",
    [
        {"speed": 0.2},
        {"speed": 0},
        *(
            {name: value, "speed": 0}
            for name, value in {
                "pitch": 0.2,
                "warp": 0.2,
                "noise": 0.5,
                "reverberation": 0.4,
                "channel": 9.0,
                "pauses": 0.2,
            }.items()
        ),
        {"volume": 9.0, "speed": 0, "normalise": "none"},
    ],
)
def test_chances_follow_from_seed_epoch_and_number_alone(given):
    data, ear = heard(bins=20, **given)
    first = ear.vary(data, [0], 1, 0, 0)
    np.testing.assert_array_equal(first, ear.vary(data, [0], 1, 0, 0))
    for place in ((2, 0, 0), (1, 1, 0), (1, 0, 1)):
        other = ear.vary(data, [0], *place)
        assert other.shape != first.shape or (other != first).any()


def test_recordings_are_joined_by_chance_up_to_the_number_and_length_asked_for():
    data, ear = heard(bins=20, joined=4, speed=0, masks=0, normalise="none")
    chosen = [ear.chosen(data, 0, 1, epoch, 0) for epoch in range(60)]
    assert {len(rows) for rows in chosen} == {1, 2, 3, 4}
    assert ear.chosen(data, 0, 1, 7, 0) == chosen[7]
    whole = ear.vary(data, [0, 0], 1, 0, 0)
    assert abs(len(whole) - 2 * data.lengths[0]) <= 3  # and two frames across the join
    np.testing.assert_allclose(whole[:40], data.load(0)[:40], atol=1e-5)
    data, short = heard(bins=20, joined=4, max_tokens=int(2.5 * data.lengths[0]))
    assert {len(short.chosen(data, 0, 1, epoch, 0)) for epoch in range(60)} == {1, 2}
    data, alone = heard(bins=20)
    assert alone.chosen(data, 0, 1, 0, 0) == [0]


def test_joined_recordings_teach_their_texts_with_a_space_between():
    s = resolve(TASKS["transcribe"], {"model": "conv-ctc", "joined": 3, "bins": 8, "pauses": 0.1})
    model = an.Transcriber(**{name: getattr(s, name) for name in ("model", "joined", "bins", "pauses")})
    model.settings_ = s
    rows = [((sound(), 8000), "ab"), ((sound(0.3), 8000), "c")]
    data, dev = model._open(rows, rows, spill=None)
    model._learn(data)
    _, batches = model._objective_and_batches(data, dev)
    said = {model.tokenizer_.decode(target) for _ in range(40) for target in next(batches).targets}
    assert {"ab", "c"} < said
    assert "ab c" in said
    assert max(map(len, (text.split() for text in said))) == 3


def test_speech_is_levelled_whatever_stands_around_it():
    loud = np.random.RandomState(1).uniform(-3, 1, (40, 10)).astype(np.float32)
    padded = np.concatenate([np.full((30, 10), -14.0, np.float32), loud, np.full((50, 10), -9.0, np.float32)])
    alone, inside = normalised(loud + 2.5, "speech"), normalised(padded, "speech")
    np.testing.assert_allclose(inside[30:70], alone, atol=1e-5)
    np.testing.assert_allclose(
        inside[:30], -5 / 3, atol=1e-5
    )  # quiet is cut off, so that its level is no matter
    np.testing.assert_allclose(inside[70:], -5 / 3, atol=1e-5)
    np.testing.assert_allclose(exported(padded, "speech"), inside, atol=1e-5)
    with pytest.raises(SettingsError, match="normalise = speech finds loud frames by the bands of log-mel"):
        resolve(TASKS["transcribe"], {"normalise": "speech", "features": "mfcc"})


def test_without_variation_training_hears_what_prediction_hears():
    data, ear = heard(bins=20, speed=0, masks=0)
    np.testing.assert_array_equal(
        ear.vary(data, [0], 1, 0, 0), ear.hear(as_item((sound(), 8000), "input 1", 8000))
    )


@pytest.mark.parametrize(
    ("own", "given", "rate"), [(8000, {}, 8000), (44100, {}, HIGHEST), (8000, {"rate": 11025}, 11025)]
)
def test_the_rate_is_that_of_the_data_up_to_what_speech_needs(own, given, rate):
    assert make_features(resolve(TASKS["transcribe"], given), own).rate == rate


def test_mfcc_take_the_same_road():
    data, ear = heard(features="mfcc", bins=13)
    assert (ear.width, ear.vary(data, [0], 1, 0, 0).shape[1]) == (13, 13)


def test_frames_are_not_sound():
    _, ear = heard()
    with pytest.raises(DataError, match="not sound"):
        ear.hear(as_item(np.zeros((5, 40), np.float32), 1, 8000))


def test_bands_that_are_all_hidden_are_refused_unless_the_default_hides_them():
    for given in ({"frequency_mask": 500}, {"features": "mfcc", "bins": 13, "frequency_mask": 13}):
        with pytest.raises(DataError, match=r"would hide all (40|13) features of a frame; choose less than"):
            heard(**given)
    for given in ({"frequency_mask": 39}, {"bins": 4}, {"frequency_mask": 500, "masks": 0}):
        data, ear = heard(**given)
        assert ear.vary(data, [0], 1, 0, 0).shape[1] == ear.width


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bands": 24}, "bands says how mfcc are made, not log-mel"),
        ({"power": 0.1}, "power says how mfcc are made, not log-mel"),
        (
            {"features": "mfcc", "power": 0.1, "normalise": "running"},
            "for which normalise = running does not wait",
        ),
    ],
)
def test_powers_and_bands_are_those_of_mfcc_of_whole_recordings(given, told):
    with pytest.raises(SettingsError, match=told):
        resolve(TASKS["transcribe"], given)


@pytest.mark.parametrize(
    ("given", "bands"), [({}, 40), ({"bands": 24}, 24), ({"bands": 8}, 13), ({"bins": 50}, 50)]
)
def test_cepstra_are_made_of_as_many_bands_as_asked_for(given, bands):
    data, ear = heard(features="mfcc", normalise="adapted", **{"bins": 13, **given})
    assert (ear.features.bins, ear.usual.bands) == (bands, bands)
    assert ear.vary(data, [0], 1, 0, 0).shape[1] == ear.width == ear.settings.bins


def test_a_model_of_powers_waits_for_the_whole_recording():
    data = [((sound(), 8000), "a"), ((sound(0.4), 8000), "b")]
    given = {
        "features": "mfcc",
        "normalise": "none",
        "hidden": 8,
        "layers": 1,
        "steps": 2,
        "warmup": 0,
        "ema": 0.0,
        "device": "cpu",
    }
    arriving, waiting = (
        an.Transcriber("lstm-ctc", **given, power=power).fit(data, valid=data) for power in (0.0, 0.1)
    )
    assert (hears_as_it_arrives(arriving), hears_as_it_arrives(waiting)) == (True, False)
    session = waiting.listening(8000)
    session.push(sound())
    assert session.finish() is not None
