"""Convolutions and feed-forward layers on each frame, before the recurrence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_blocks import made, weights
from torch.nn import functional as F
from transcribe_tiny import recordings

import anaphora as an
from anaphora.errors import DataError, SettingsError
from anaphora.models.frontend import ConvolvedFrames, DenseFrames

DRAW = np.random.default_rng(0)
FILMS = [(DRAW.normal(size=(3 + n % 4, 12)).astype(np.float32), "ab"[n % 2]) for n in range(12)]


def test_a_frame_that_is_a_picture_is_convolved_as_one():
    torch.manual_seed(0)
    network = ConvolvedFrames(5 * 6 * 2, 7, (5, 6))
    film = torch.randn(2, 3, 5, 6, 2)
    found = network(film.flatten(2))
    for row in range(2):
        for t in range(3):
            x = film[row, t].permute(2, 0, 1)[None]
            for layer in network.layers:
                x = F.relu(F.conv2d(x, layer.weight, layer.bias, stride=2, padding=1))
            expected = F.relu(network.linear(x.flatten(1)))
            torch.testing.assert_close(found[row, t], expected[0])


def test_no_frame_sees_another():
    for network in (ConvolvedFrames(12, 4), ConvolvedFrames(12, 4, (3, 4)), DenseFrames(12, 4)):
        x = torch.randn(2, 5, 12)
        found = network(x)
        x[:, 3:] = 99.0
        torch.testing.assert_close(network(x)[:, :3], found[:, :3])


@pytest.mark.parametrize("preset", ["bilstm", "transformer"])
@pytest.mark.parametrize(
    "variant", [{"frontend": "dense"}, {"frontend": "conv"}, {"frontend": "conv", "frame": "3x4"}], ids=str
)
def test_frames_are_classified_alone_as_among_others_and_after_loading(preset, variant, tmp_path):
    model = made(an.Classifier, preset, **variant).fit(FILMS, valid=FILMS, out=tmp_path / "run")
    asked = [x for x, _ in FILMS]
    together = model.predict_proba(asked)
    alone = np.concatenate([model.predict_proba([x]) for x in asked])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    again = an.load(tmp_path / "run", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(asked), together)
    on = an.Classifier.resume(tmp_path / "run", steps=3)
    assert weights(on).keys() == weights(model).keys()
    assert on.result_.steps == 3


@pytest.mark.parametrize("preset", ["bilstm-ctc", "attention", "conv-ctc", "transformer-ctc"])
def test_frames_are_transcribed(preset, tmp_path):
    heard = recordings(4)
    model = made(an.Transcriber, preset, frontend="conv", frame="2x4").fit(
        heard, valid=heard, out=tmp_path / "run"
    )
    asked = [x for x, _ in heard]
    assert an.load(tmp_path / "run", device="cpu").predict(asked) == model.predict(asked)


def test_frames_that_cannot_be():
    with pytest.raises(SettingsError, match="is for frontend = 'conv', but frontend = 'none'"):
        an.Classifier(frame="3x4")
    with pytest.raises(SettingsError, match="rows and columns, such as 24x32"):
        an.Classifier(frontend="conv", frame="3 by 4")
    with pytest.raises(DataError, match="frame = 5x5 has 25 values, but the frames of the data have 12"):
        made(an.Classifier, "bilstm", frontend="conv", frame="5x5").fit(FILMS, valid=FILMS)
    with pytest.raises(DataError, match="frontend reads frames of vectors, but the data are texts"):
        made(an.Classifier, "bilstm", frontend="dense").fit([("a b", "x"), ("b a", "y")] * 4)
