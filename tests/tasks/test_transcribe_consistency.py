"""Two copies of a recording, varied each in its own way, must be heard alike (CR-CTC)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transcribe_tiny import stop_before_step

import anaphora as an
from anaphora.tasks.spoken import SpokenBatch
from anaphora.tasks.transcribe.objective import disagreement

RATE = 8000
SMALL = {
    "hidden": 6, "layers": 1, "bins": 12, "warmup": 0, "ema": 0.0, "valid_every": 100, "device": "cpu", "dropout": 0.2,
}  # fmt: skip
VARIED = {"speed": 0.2, "pauses": 0.1, "warp": 0.1, "channel": 6.0, "noise": 0.1}


def rows(count=6):
    draw = np.random.RandomState(0)
    return [((0.1 * draw.randn(RATE // 3).astype(np.float32), RATE), "ab"[: 1 + i % 2]) for i in range(count)]


def test_the_divergence_is_that_of_the_definition():
    scores = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
    lengths = torch.tensor([5, 5, 3, 3])
    found = disagreement(scores, lengths)
    p = scores.detach().double().softmax(-1).numpy()
    expected = 0.0
    for a, b in ((0, 1), (1, 0), (2, 3), (3, 2)):
        for t in range(int(lengths[a])):
            expected += sum(p[a, t, k] * math.log(p[a, t, k] / p[b, t, k]) for k in range(3))
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)
    found.backward()
    # of KL(q ‖ softmax(z)) with q given, the gradient is softmax(z) − q
    np.testing.assert_allclose(scores.grad[0].numpy(), p[0] - p[1], atol=1e-6)
    np.testing.assert_allclose(scores.grad[2, 3:].numpy(), 0.0)
    assert float(disagreement(scores[:1].repeat(2, 1, 1), lengths[:2]).detach()) == pytest.approx(
        0.0, abs=1e-6
    )


def test_copies_stand_at_the_same_places_and_sound_different():
    data = rows()
    model = an.Transcriber("bilstm-ctc", steps=1, **VARIED, **SMALL).fit(data, valid=data[:1])
    recordings, _ = model._open(data, data[:1], spill=None)
    for i in range(4):
        first, second, again, other = (
            model.ear_.vary(recordings, [i], 1, epoch, i, copy=copy)
            for epoch, copy in ((0, 0), (0, 1), (0, 1), (1, 0))
        )
        assert first.shape == second.shape
        assert not np.allclose(first, second)
        np.testing.assert_array_equal(second, again)
        assert other.shape != first.shape or not np.allclose(first, other)


def test_workers_share_out_recordings_not_copies():
    frames = [np.full((3, 1), i, np.float32) for i in range(6)]
    batch = SpokenBatch(frames, [[1], [1], [2, 2], [2, 2], [3], [3]], [7, 7, 8, 8, 9, 9], copies=2)
    assert (len(batch), batch.symbols) == (3, 14)
    assert batch.shard(0, 2).indices == [7, 7, 9, 9]
    assert batch.shard(1, 2).targets == [[2, 2], [2, 2]]
    assert len(batch.shard(3, 4)) == 0
    assert sum(batch.shard(i, 3).symbols for i in range(3)) == 14


def test_it_teaches_and_resumes_bit_for_bit(tmp_path, monkeypatch):
    data = rows()
    asked = {"consistency": 0.5, **VARIED, **SMALL, "save_every": 2, "batch_tokens": 200}
    whole = an.Transcriber("bilstm-ctc", steps=4, **asked).fit(data, valid=data[:1])
    with monkeypatch.context() as patch:
        stop_before_step(patch, 4)
        with pytest.raises(RuntimeError, match="stopped"):
            an.Transcriber("bilstm-ctc", steps=4, **asked).fit(data, valid=data[:1], out=tmp_path / "run")
    resumed = an.Transcriber.resume(tmp_path / "run")
    plain = an.Transcriber("bilstm-ctc", steps=4, **{**asked, "consistency": 0.0}).fit(data, valid=data[:1])
    for name, value in whole.model_.state_dict().items():
        assert torch.equal(value, resumed.model_.state_dict()[name]), name
    assert any(
        not torch.equal(value, plain.model_.state_dict()[name])
        for name, value in whole.model_.state_dict().items()
    )


def test_presets_without_frames_of_ctc_do_not_have_it():
    with pytest.raises(an.AnaphoraError, match="consistency"):
        an.Transcriber("attention", consistency=0.2).fit(rows(2))
