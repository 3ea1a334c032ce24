"""A transcriber of several networks side by side is a model like any other: it learns, is saved, looked into and adapted."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transcribe_tiny import recordings, tiny

import anaphora as an
from anaphora.errors import DataError, SettingsError
from anaphora.models.banded import BandConvolutions, smooth_spectrum
from anaphora.models.ctc import FrameScores, MemberScores
from anaphora.tasks.recipe import Recipe


@pytest.fixture(scope="module")
def model():
    return tiny("conv-ctc", members=3, hidden=12, label_prior=0.3, steps=60).fit(
        recordings(60), valid=recordings(5, seed=1)
    )


def test_it_learns(model):
    assert isinstance(model.model_.frames, MemberScores)
    assert model.score(recordings(10, seed=2))["cer"] < 20


def test_it_is_the_same_after_saving_and_whatever_stands_beside_a_recording(model, tmp_path):
    model.save(tmp_path / "run")
    again = an.load(tmp_path / "run")
    some = [x for x, _ in recordings(4, seed=3)]
    together = model.predict(some, details=True)
    for one, whole, read in zip(some, together, again.predict(some, details=True), strict=True):
        (alone,) = model.predict([one], details=True)
        assert (alone.text, read.text) == (whole.text, whole.text)
        assert alone.score == pytest.approx(whole.score, abs=1e-4)
        assert read.score == pytest.approx(whole.score, abs=1e-6)


def test_it_can_be_looked_into(model):
    x, text = recordings(1, seed=4)[0]
    trace = model.probe(x, text)
    assert trace.array("posteriors").shape[-1] == model.tokenizer_.size
    assert trace.array("states").shape[::2] == (2, 36)  # layers, units of all members
    assert trace.max_difference < 1e-4


def test_it_adapts(model):
    some = [x for x, _ in recordings(8, seed=5)]
    before = {name: value.clone() for name, value in model.model_.state_dict().items()}
    other = model.adapt(some, rounds=1)
    assert all(torch.equal(value, before[name]) for name, value in model.model_.state_dict().items())
    assert not torch.equal(other.model_.frames.weight, model.model_.frames.weight)


def test_copies_are_held_together():
    tiny("conv-ctc", members=2, steps=3, consistency=0.2).fit(recordings(8), valid=recordings(2))


class Encoder(torch.nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.linear, self.width = torch.nn.Linear(inputs, 6), 6

    def forward(self, x, lengths):
        return self.linear(x)


def test_an_encoder_of_ones_own_is_one_network():
    model = tiny("conv-ctc", members=2, steps=2, encoder=lambda spec: Encoder(spec.inputs))
    model.fit(recordings(8), valid=recordings(2))
    assert type(model.model_.frames) is FrameScores


@pytest.mark.parametrize(
    ("given", "told"), [({"members": 0}, "members"), ({"model": "bilstm-ctc", "members": 2}, "no effect")]
)
def test_members_that_do_not_fit_are_refused(given, told):
    with pytest.raises(SettingsError, match=told):
        an.Transcriber(**{"model": "conv-ctc", **given})


def test_members_began_otherwise():
    model = tiny("conv-ctc", members=2, steps=1).fit(recordings(8), valid=recordings(2))
    first, second = model.model_.encoder.body.layers[0].weight.detach().chunk(2)
    assert not np.allclose(first.numpy(), second.numpy(), atol=1e-2)


RATE = 8000
BANDED = {
    "hidden": 16, "layers": 1, "warmup": 0, "ema": 0.0, "valid_every": 1000, "save_every": 1000, "device": "cpu", "masks": 0, "dropout": 0.0,
    "speed": 0.0, "tokens": "word",
}  # fmt: skip
PLAIN = {
    "mixup": 0.0,
    "warp": 0.0,
    "bend": 0.0,
    "noise": 0.0,
    "pauses": 0.0,
    "channel": 0.0,
    "label_prior": 0.0,
}
"""Nothing varied, so that features are made once."""


def sounds(count=10):
    """Words that differ by the tone in them."""
    draw, time = np.random.RandomState(0), np.arange(RATE // 4) / RATE
    tones = {"low": 500, "high": 1800}
    words = [("low", "high")[i % 2] for i in range(count)]
    waves = [np.sin(2 * np.pi * tones[word] * time) + 0.05 * draw.randn(len(time)) for word in words]
    return [((0.3 * wave.astype(np.float32), RATE), word) for wave, word in zip(waves, words, strict=True)]


@pytest.mark.parametrize(
    "given",
    [
        {"model": "mfcc-ctc", "members": 2, **PLAIN},
        {"model": "conv-ctc", "members": 3, "band_members": 2, "bins": 20},
        {"model": "conv-ctc", "band_members": 1, "bins": 20, "subsample": 4, "differences": 1},
    ],
)
def test_networks_that_read_bands_learn_are_saved_and_adapt(given, tmp_path):
    model = an.Transcriber(**{**BANDED, "steps": 120, "lr": 2e-2, **given}).fit(sounds(), valid=sounds(2))
    inputs, words = zip(*sounds(4), strict=True)
    assert model.predict(inputs) == list(words)
    assert any(isinstance(part, BandConvolutions) for part in model.model_.modules())
    model.save(tmp_path / "run")
    again = an.load(tmp_path / "run")
    (one,), (other,) = (m.predict(inputs[1:2], details=True) for m in (model, again))
    assert one.score == pytest.approx(other.score, abs=1e-6)
    together = model.predict(inputs, details=True)[1]
    assert one.score == pytest.approx(together.score, abs=1e-4)
    assert model.adapt(inputs, rounds=1).predict(inputs[:1]) == ["low"]


def test_the_spectrum_follows_from_what_is_usual_in_the_training_data():
    given = {**BANDED, "model": "mfcc-ctc", "members": 2, "steps": 1}
    model = an.Transcriber(**given).fit(sounds(), valid=sounds(2))
    front = next(part for part in model.model_.modules() if isinstance(part, BandConvolutions))
    usual = model.ear_.usual.deviation.tolist()
    torch.testing.assert_close(front.spectrum, smooth_spectrum(model.ear_.features.transform, usual))


@pytest.mark.parametrize(
    ("given", "banded"),
    [
        ({}, 3),
        ({"members": 1, "hidden": 128}, 0),
        ({"members": 4}, 2),
        ({"normalise": "features"}, 0),
        ({"features": "log-mel", "power": 0, "normalise": "features"}, 3),
        ({"subsample": 8}, 0),
        ({"frontend": "dense"}, 0),
        ({"band_members": 1}, 1),
    ],
)
def test_the_preset_reads_bands_as_far_as_the_rest_allows(given, banded):
    assert an.Transcriber("mfcc-ctc", **given).settings_.band_members == banded


def test_a_run_from_before_networks_that_read_bands_is_as_it_was(tmp_path):
    model = an.Transcriber("mfcc-ctc", **BANDED, members=2, band_members=0, steps=1).fit(
        sounds(), valid=sounds(2)
    )
    model.save(tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    document = json.loads(config.read_text(encoding="utf-8"))
    assert document["settings"].pop("band_members") == 0
    config.write_text(json.dumps(document), encoding="utf-8")
    assert Recipe.read(tmp_path / "run").settings.band_members == 0
    assert an.Transcriber("mfcc-ctc", members=2).settings_.band_members == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"members": 2, "band_members": 3}, "more than members = 2"),
        ({"members": 2, "band_members": 1, "subsample": 8}, "must be 1, 2 or 4"),
        ({"band_members": 1, "frontend": "dense"}, "with nothing before them"),
        ({"band_members": 1, "features": "mfcc", "bins": 13}, "choose normalise = adapted"),
        ({"model": "bilstm-ctc", "band_members": 1}, "no effect"),
    ],
)
def test_networks_that_cannot_read_bands_are_refused(given, told):
    with pytest.raises(SettingsError, match=told):
        an.Transcriber(**{"model": "conv-ctc", **given})


def test_frames_have_no_bands_to_read():
    with pytest.raises(DataError, match="set band_members = 0"):
        tiny("conv-ctc", band_members=1, steps=1).fit(recordings(8), valid=recordings(2))
