"""Features of the user's own, of recordings and of sequences of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anaphora as an
from anaphora.errors import DataError, RunError, SettingsError

TINY: dict[str, Any] = {
    "steps": 2,
    "valid_every": 2,
    "save_every": 2,
    "hidden": 8,
    "layers": 1,
    "batch_tokens": 400,
}
RNG = np.random.default_rng(0)
SPOKEN = [((RNG.normal(0, 0.1, 2000).astype(np.float32), 4000), "ab") for _ in range(6)]
ROWS = [(RNG.normal(size=(5, 3)), "up" if i % 2 else "down") for i in range(8)]


def loudness(samples: Any, rate: int) -> Any:
    """A frame of 20 ms holds its loudness and its largest sample."""
    frames = samples[: len(samples) // (rate // 50) * (rate // 50)].reshape(-1, rate // 50)
    return np.stack([(frames**2).mean(1), frames.max(1)], 1)


def changes(x: Any) -> Any:
    return np.concatenate([x[1:], np.diff(x, axis=0)], 1)


def test_frames_of_sound_are_those_of_the_function(tmp_path: Path) -> None:
    m = an.Transcriber(features=loudness, hop=0.02, **TINY).fit(SPOKEN, valid=SPOKEN, out=tmp_path / "run")
    assert m.ear_.width == 2
    (wave, rate), _ = SPOKEN[0]
    frames = m._hear((wave, rate))
    raw = loudness(wave, rate)
    assert frames.shape == raw.shape == (25, 2)
    np.testing.assert_allclose(frames, (raw - raw.mean(0)) / raw.std(0), rtol=1e-3, atol=1e-3)
    with pytest.raises(RunError, match=r"features = .* is code that the run names"):
        an.load(tmp_path / "run")
    again = an.load(tmp_path / "run", features=loudness)
    assert again.predict([SPOKEN[0][0]]) == m.predict([SPOKEN[0][0]])
    assert again.probe(SPOKEN[0][0]).arrays["spectrogram"].values.shape == (25, 2)
    assert m.score(SPOKEN)["cer"] == again.score(SPOKEN)["cer"]


def test_a_rate_of_frames_that_is_not_hop_is_an_error() -> None:
    with pytest.raises(SettingsError, match=r"one in 0.02 s, but hop = 0.01.*set hop = 0.02"):
        an.Transcriber(features=loudness, **TINY).fit(SPOKEN)
    with pytest.raises(SettingsError, match="warp stretches the bands"):
        an.Transcriber(features=loudness, warp=0.1)
    with pytest.raises(SettingsError, match=r"must make an array \(time, width\), but made \(16000,\)"):
        an.Transcriber(features=lambda samples, rate: samples, **TINY).fit(SPOKEN)


def test_vectors_of_a_classifier_become_others(tmp_path: Path) -> None:
    m = an.Classifier("lstm", features=changes, **TINY).fit(ROWS, valid=ROWS, out=tmp_path / "run")
    assert m.inputs_.sizes == {"features": 6}
    (seen,) = m.inputs_.encode([ROWS[0][0]])
    assert seen.shape == (4, 6)
    again = an.load(tmp_path / "run", features=changes)
    assert again.predict([x for x, _ in ROWS]) == m.predict([x for x, _ in ROWS])
    assert an.Classifier.resume(tmp_path / "run", steps=3, features=changes).result_.steps == 3


def test_features_of_texts_are_an_error() -> None:
    with pytest.raises(DataError, match="features makes frames of vectors, but the data are texts"):
        an.Classifier("lstm", features=changes, **TINY).fit([("a", "x"), ("b", "y")] * 4)
