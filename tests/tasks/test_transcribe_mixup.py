"""Each recording is heard with another one below it, and the loss is mixed alike (mixup)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transcribe_tiny import recordings, stop_before_step, tiny

import anaphora as an
from anaphora.models.ctc import FrameScores, MemberScores
from anaphora.search import ctc_loss
from anaphora.tasks.spoken import SpokenBatch, mixed
from anaphora.tasks.transcribe.objective import frame_loss


def batch(copies=1):
    draw = np.random.RandomState(0)
    count = 4 * copies
    frames = [draw.randn(3 + i // copies, 2).astype(np.float32) for i in range(count)]
    return SpokenBatch(
        frames, [[1 + i // copies] for i in range(count)], [i // copies for i in range(count)], copies
    )


@pytest.mark.parametrize("copies", [1, 2])
def test_frames_are_mixed_by_the_shares_that_are_told(copies):
    plain = batch(copies)
    found = mixed(plain, 0.5, 1, 2, 3)
    assert found.targets == plain.targets
    assert all(0 <= share <= 0.5 for share in found.shares)
    for i, (share, other) in enumerate(zip(found.shares, found.others, strict=True)):
        j = (other[0] - 1) * copies + i % copies
        longest = max(len(plain.inputs[i]), len(plain.inputs[j]))
        one, two = (np.pad(plain.inputs[k], ((0, longest - len(plain.inputs[k])), (0, 0))) for k in (i, j))
        np.testing.assert_allclose(found.inputs[i], (1 - share) * one + share * two, atol=1e-6)
    if copies == 2:
        assert found.shares[::2] == found.shares[1::2]
        assert found.others[::2] == found.others[1::2]
    assert len({round(share, 9) for share in found.shares}) == 4


def test_what_is_drawn_depends_on_the_place_alone():
    first, again, elsewhere = (mixed(batch(), 0.5, *place) for place in ((1, 0, 5), (1, 0, 5), (1, 1, 5)))
    assert (first.shares, first.others) == (again.shares, again.others)
    assert first.shares != elsewhere.shares


def test_workers_take_their_rows_with_what_was_mixed_into_them():
    found = mixed(batch(), 0.5, 1)
    part = found.shard(1, 2)
    assert (part.others, part.shares) == (found.others[1::2], found.shares[1::2])
    assert batch().shard(1, 2).others == []


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("prior", [0.0, 0.5])
def test_the_loss_is_mixed_by_the_same_shares(members, prior):
    torch.manual_seed(1)
    made = MemberScores(4, 5, members, prior=prior) if members > 1 else FrameScores(4, 5, prior=prior)
    scores = torch.randn(members * 2, 6, 5, requires_grad=True)
    lengths = torch.tensor([6, 5] * members)
    first, second, shares = [[1, 2], [3]], [[4], [1, 1]], [0.25, 0.5]

    def alone(i, target):
        """The loss of row i with a target; π has been counted once, and is held."""
        rows = scores.view(members, 2, 6, 5)[:, i].log_softmax(-1)
        weighed = made.weighed(rows)
        each = ctc_loss(weighed, [target] * members, lengths[i::2], normalized=True, reduction="none").mean()
        if members == 1:
            return each
        mean = made.weighed(rows.logsumexp(0) - np.log(members))[None]
        return (each + ctc_loss(mean, [target], lengths[i : i + 1], normalized=True, reduction="sum")) / 2

    found = frame_loss(made.train(), scores, lengths, first, (second, shares))
    expected = sum(
        (1 - w) * alone(i, a) + w * alone(i, b)
        for i, (a, b, w) in enumerate(zip(first, second, shares, strict=True))
    )
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    (slope,) = torch.autograd.grad(found, scores, retain_graph=True)
    (other,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(slope, other, atol=1e-5, rtol=1e-4)


def test_a_model_learns_with_it():
    model = tiny("conv-ctc", members=2, hidden=16, label_prior=0.3, mixup=0.2, steps=90)
    model.fit(recordings(60), valid=recordings(5, seed=1))
    assert model.score(recordings(10, seed=2))["cer"] < 30


def test_it_resumes_bit_for_bit(tmp_path, monkeypatch):
    asked = {"mixup": 0.4, "save_every": 2, "steps": 4, "members": 2}
    data, dev = recordings(12), recordings(2, seed=1)
    whole = tiny("conv-ctc", **asked).fit(data, valid=dev)
    with monkeypatch.context() as patch:
        stop_before_step(patch, 4)
        with pytest.raises(RuntimeError, match="stopped"):
            tiny("conv-ctc", **asked).fit(data, valid=dev, out=tmp_path / "run")
    resumed = an.Transcriber.resume(tmp_path / "run")
    plain = tiny("conv-ctc", **{**asked, "mixup": 0.0}).fit(data, valid=dev)
    pairs = [
        [model.model_.state_dict()[name] for model in (whole, resumed, plain)]
        for name in whole.model_.state_dict()
    ]
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)


@pytest.mark.parametrize("given", [{"model": "attention", "mixup": 0.2}, {"mixup": -1.0}])
def test_what_does_not_fit_is_refused(given):
    with pytest.raises(an.AnaphoraError, match="mixup"):
        an.Transcriber(**given)
