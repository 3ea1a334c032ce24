"""A transcriber of several networks side by side is a model like any other: it learns, is saved, looked into and adapted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transcribe_tiny import recordings, tiny

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.models.ctc import FrameScores, MemberScores


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
