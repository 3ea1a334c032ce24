"""Label priors: each symbol is divided by its share of frames, while training in the loss, afterwards in the scores."""

from __future__ import annotations

import torch

from anaphora.models.ctc import FrameScores, log_probabilities
from anaphora.models.memory import Memory
from anaphora.tasks.transcribe.objective import frame_loss


def _frames(prior: float) -> FrameScores:
    torch.manual_seed(1)
    return FrameScores(4, 3, prior=prior)


def test_without_a_prior_scores_and_loss_are_those_of_ctc():
    frames = _frames(0.0)
    scores = torch.zeros(1, 2, 3)
    assert set(frames.state_dict()) == {"linear.weight", "linear.bias"}
    # three of nine paths spell the label: (1, 1), (0, 1), (1, 0)
    loss = frame_loss(frames.train(), scores, torch.tensor([2]), [[1]])
    torch.testing.assert_close(loss, torch.tensor(3.0).log())


def test_loss_by_hand_and_its_gradient():
    frames = _frames(1.0).train()
    frames.shares.copy_(torch.tensor([0.5, 0.25, 0.25]))
    frames.batches.fill_(10**9)
    frames.RATE = 0.0  # the shares stay
    scores = torch.zeros(1, 2, 3, requires_grad=True)
    loss = frame_loss(frames, scores, torch.tensor([2]), [[1]])
    # p = ⅓ each, times ¼/share: ⅙ for the blank and ⅓ for the label: 1/9 + 1/18 + 1/18
    torch.testing.assert_close(loss.detach(), -torch.tensor(2 / 9).log())
    loss.backward()
    # the paths (1, 1), (0, 1), (1, 0) have shares ½, ¼, ¼: at either frame the label has ¾, the blank ¼
    wanted = torch.tensor([1 / 3 - 1 / 4, 1 / 3 - 3 / 4, 1 / 3])
    torch.testing.assert_close(scores.grad[0], wanted.expand(2, 3))


def test_shares_are_the_mean_of_the_first_batches_over_real_frames():
    frames = _frames(0.5)
    log_p = torch.tensor([[[0.8, 0.1, 0.1], [0.4, 0.3, 0.3], [0.0, 0.0, 1.0]]]).log()
    frames.count(log_p, torch.tensor([2]))
    torch.testing.assert_close(frames.shares, torch.tensor([0.6, 0.2, 0.2]))
    frames.count(log_p, torch.tensor([1]))
    torch.testing.assert_close(frames.shares, torch.tensor([0.7, 0.15, 0.15]))


def test_afterwards_scores_are_divided_by_the_shares():
    frames = _frames(0.5)
    frames.shares.copy_(torch.tensor([0.64, 0.32, 0.04]))
    memory = Memory(torch.zeros(1, 2, 4), torch.ones(1, 2, dtype=torch.bool))
    trained, _ = frames.train()(memory)
    asked, _ = frames.eval()(memory)
    assert not trained.any()
    # (share / least share)^−½: ¼, 1/√8, 1
    torch.testing.assert_close(asked[0, 0].exp(), torch.tensor([0.25, 8**-0.5, 1.0]))
    assert log_probabilities(asked).exp().sum(-1).allclose(torch.ones(1, 2))
