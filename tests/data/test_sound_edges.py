"""Quiet around a recording, bent frequencies, and what an exported model hears of both."""

from __future__ import annotations

import numpy as np
import pytest

from anaphora.data.audio.frames import make_features
from anaphora.data.audio.preprocessing import edged, margin_of, quiet
from anaphora.data.audio.recordings import frames_of
from anaphora.data.audio.warping import bend
from anaphora.errors import SettingsError
from anaphora.tasks.registry import TASKS, resolve


def test_edges_are_as_quiet_as_the_recording_and_leave_it_as_it_is():
    random = np.random.RandomState(1)
    wave = random.standard_normal(8000).astype(np.float32)
    wave[2000:4000] *= 0.01
    found = edged(wave, 1200, 8000)
    assert np.array_equal(found[1200:-1200], wave)
    level = quiet(wave, 8000)
    assert 0.008 < level < 0.012
    for side in (found[:1200], found[-1200:]):
        assert abs(np.sqrt(np.mean(side**2)) / level - 1) < 0.1
    assert np.array_equal(found, edged(wave, 1200, 8000))
    assert len(edged(wave[:0], 1200, 8000)) == 0


def test_frames_of_the_recording_stand_between_its_margins():
    s = resolve(TASKS["transcribe"], {"model": "mfcc-ctc", "power": 0})  # measured by the recording alone
    assert margin_of(s) == 16
    plain = resolve(TASKS["transcribe"], {"model": "mfcc-ctc", "power": 0, "edges": 0})
    wave = np.random.RandomState(2).standard_normal(4000).astype(np.float32)
    with_edges, without = (frames_of(wave, make_features(one, 8000)) for one in (s, plain))
    assert len(with_edges) == len(without) + 32
    # the first frame differs: pre-emphasis hears the sample before it
    np.testing.assert_allclose(with_edges[17:-18], without[1:-2], atol=1e-3)


def test_bend_keeps_both_ends_and_moves_what_is_between():
    x = np.tile(np.arange(40, dtype=np.float32), (3, 1))
    found = bend(x, 0.35, np.random.RandomState(3))
    assert found[0, 0] == 0
    assert found[0, -1] == 39
    assert 0.2 < np.abs(found - x).max() < 6
    assert np.array_equal(found[0], found[2])
    assert (np.diff(bend(x, 0.2, np.random.RandomState(4))[0]) > 0).all()
    assert np.array_equal(bend(x, 0.0, np.random.RandomState(3)), x)


@pytest.mark.parametrize("name", ["edges", "bend"])
def test_samples_have_neither(name):
    with pytest.raises(SettingsError, match=name):
        resolve(TASKS["transcribe"], {"model": "wav2vec2", name: 0.1})
