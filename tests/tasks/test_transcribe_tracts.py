"""A model that hears each recording as several vocal tracts would have said it, whatever asks it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.data.audio.frames import lengths_of_tracts
from anaphora.errors import DataError, SettingsError
from anaphora.models.ctc import log_probabilities
from anaphora.models.tracts import Tracts

RATE = 8000
SMALL = {
    "model": "mfcc-ctc", "hidden": 8, "layers": 1, "steps": 3, "subsample": 2, "warmup": 0, "ema": 0.0, "valid_every": 100,
    "save_every": 100, "device": "cpu", "masks": 0, "members": 1, "dropout": 0.0,
}  # fmt: skip


def sounds(count: int = 4):
    draw = np.random.RandomState(0)
    return [0.1 * np.cumsum(draw.randn(RATE // 2 + 400 * i)).astype(np.float32) / 30 for i in range(count)]


def rows():
    return [((wave, RATE), "ab"[: 1 + i % 2]) for i, wave in enumerate(sounds())]


@pytest.fixture(scope="module")
def model():
    return an.Transcriber(**SMALL, tracts=3).fit(rows(), valid=rows()[:1])


def test_the_lengths_lie_around_ones_own():
    assert lengths_of_tracts(3) == [0.85, 1.0, 1.15]
    assert lengths_of_tracts(1) == [0.85]  # which nobody asks for


def test_the_maps_give_what_the_ear_hears_of_such_a_voice(model):
    """But for the variance of the recording, which is not known any more where frames are normalised."""
    from anaphora.data.audio.recordings_readers import as_item

    item = as_item((sounds()[3], RATE), 1, RATE)
    plain = torch.from_numpy(model.ear_.hear(item))[None]
    heard = [torch.from_numpy(model.ear_.hear(item, factor)) for factor in (0.85, 1.15)]
    made = list(model.model_.tracts(plain, torch.tensor([plain.shape[1]])))
    for mine, theirs in zip(made, heard, strict=True):
        change = (theirs - plain[0]).square().mean()
        assert (theirs - mine[0]).square().mean() < 0.2 * change


def test_what_it_thinks_is_the_mean_over_voices(model):
    net = model.model_.eval()
    torch.manual_seed(1)
    x, lengths = torch.randn(2, 60, 13), torch.tensor([60, 50])
    scores, _ = net(x, lengths)
    voices = [x, *net.tracts(x, lengths)]
    each = [log_probabilities(net.frames(net.encoder(y, lengths))[0]).exp() for y in voices]
    torch.testing.assert_close(scores.exp(), torch.stack(each).mean(0))
    net.train()
    torch.testing.assert_close(net(x, lengths)[0], net.frames(net.encoder(x, lengths))[0])
    net.eval()


def test_a_row_does_not_depend_on_what_stands_after_its_end():
    torch.manual_seed(1)
    tracts = Tracts(torch.randn(2, 4, 4))
    x = torch.randn(2, 9, 4)
    changed = x.clone()
    changed[1, 5:] = 100.0
    lengths = torch.tensor([9, 5])
    for one, other in zip(tracts(x, lengths), tracts(changed, lengths), strict=True):
        torch.testing.assert_close(one[1, :5], other[1, :5])
        assert not one[1, 5:].any()
    (alone, _) = tracts(x[1:, :5], lengths[1:])
    torch.testing.assert_close(alone[0], next(iter(tracts(x, lengths)))[1, :5])


def test_it_is_saved_with_the_model_and_looked_at_as_the_recording_itself(model, tmp_path):
    model.save(tmp_path / "run")
    again = an.load(tmp_path / "run")
    inputs = [(wave, RATE) for wave in sounds(2)]
    mine, theirs = model.predict(inputs, details=True), again.predict(inputs, details=True)
    assert [t.score for t in mine] == pytest.approx([t.score for t in theirs], abs=1e-6)
    trace = model.probe(sounds(1)[0], "ab")
    assert trace.array("states").shape[0] == 1  # one layer, of one voice
    assert trace.max_difference < 1e-4


@pytest.mark.parametrize("given", [{"tracts": 2}, {"tracts": 3, "normalise": "level"}])
def test_tracts_that_do_not_fit_are_refused(given):
    with pytest.raises(SettingsError, match="must be odd, with normalise = adapted"):
        an.Transcriber(**{**SMALL, **given})


def test_frames_have_no_voices():
    frames = [(np.random.RandomState(i).randn(30, 13).astype(np.float32), "a") for i in range(3)]
    with pytest.raises(DataError, match="tracts is about voices"):
        an.Transcriber(**{**SMALL, "model": "conv-ctc", "tracts": 3, "normalise": "adapted"}).fit(frames)
