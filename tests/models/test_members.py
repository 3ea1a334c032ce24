"""Networks side by side in one model: each is what it would be alone, and afterwards their probabilities are averaged."""

from __future__ import annotations

import pytest
import torch

from anaphora.models.ctc import CTCModel, FrameScores, MemberScores, log_probabilities
from anaphora.models.listener import ConvolutionListener, Listener, Subsampling
from anaphora.nn.convolution import Convolution
from anaphora.tasks.transcribe.objective import disagreement, frame_loss

FEATURES, WIDTH, SYMBOLS, MEMBERS = 3, 4, 5, 3


def _model(members: int, factor: int = 4, prior: float = 0.5) -> CTCModel:
    torch.manual_seed(1)
    front = Subsampling(FEATURES, WIDTH, factor, members=members)
    encoder = Listener(front, ConvolutionListener(WIDTH, 3, 2, members=members), margin=1)
    if members == 1:
        return CTCModel(encoder, FrameScores(WIDTH, SYMBOLS, prior=prior))
    return CTCModel(encoder, MemberScores(WIDTH, SYMBOLS, members, prior=prior))


def _alone(model: CTCModel, m: int) -> CTCModel:
    """Member ``m`` as a model of its own."""
    one = _model(1)
    part = slice(m * WIDTH, (m + 1) * WIDTH)
    theirs = model.state_dict()
    found = {}
    for name, value in one.state_dict().items():
        if name == "frames.linear.weight":
            found[name] = theirs["frames.weight"][m]
        elif name == "frames.linear.bias":
            found[name] = theirs["frames.bias"][m]
        elif ".norms." in name:
            found[name] = theirs[name][m]
        elif name.startswith("frames."):
            found[name] = theirs[name]
        else:
            found[name] = theirs[name][part]
        assert found[name].shape == value.shape, name
    one.load_state_dict(found)
    return one


def _given() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    return torch.randn(2, 24, FEATURES), torch.tensor([24, 17])


def _moved(model: CTCModel) -> CTCModel:
    """With gains, biases and shares that are not those of the beginning."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        model.frames.shares.copy_(torch.rand(SYMBOLS).softmax(0))
    return model


def test_each_member_is_what_it_would_be_alone():
    model = _moved(_model(MEMBERS))
    x, lengths = _given()
    together, theirs = model.train()(x, lengths)
    assert together.shape == (MEMBERS * 2, 4, SYMBOLS)
    assert theirs.tolist() == [4, 3] * MEMBERS
    for m in range(MEMBERS):
        scores, _ = _alone(model, m).train()(x, lengths)
        torch.testing.assert_close(together[2 * m : 2 * m + 2], scores)


def test_afterwards_their_probabilities_are_averaged():
    model = _moved(_model(MEMBERS)).eval()
    x, lengths = _given()
    scores, theirs = model(x, lengths)
    each = [log_probabilities(_alone(model, m).eval()(x, lengths)[0]).exp() for m in range(MEMBERS)]
    torch.testing.assert_close(scores.exp(), torch.stack(each).mean(0))
    torch.testing.assert_close(log_probabilities(scores), scores)
    assert theirs.tolist() == [4, 3]


@pytest.mark.parametrize("prior", [False, True])
def test_the_loss_is_half_the_mean_of_theirs_and_half_that_of_their_mean(prior):
    model = _moved(_model(MEMBERS)).train()
    x, lengths = _given()
    targets = [[1, 2], [3]]
    model.frames.count = lambda log_p, lengths: None  # which would move the shares

    def loss(frames, scores):
        return frame_loss(frames, scores, theirs[: len(scores)], targets)

    scores, theirs = model(x, lengths)
    frames = model.frames if prior else _Weighing(model.frames)
    alone = torch.stack([loss(frames, one) for one in scores.chunk(MEMBERS)])
    mean = torch.stack([one.softmax(-1) for one in scores.chunk(MEMBERS)]).mean(0).log()
    together = loss(frames, mean)
    assert together < alone.mean()  # by Jensen's inequality
    torch.testing.assert_close(loss(frames, scores), (alone.mean() + together) / 2)


def test_each_network_has_its_own_weights():
    model = _moved(_model(MEMBERS)).train()
    scores, _ = model(*_given())
    scores[:2].sum().backward()  # of the first member alone
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(g.flatten()[: len(g.flatten()) // MEMBERS].any() for g in grads if g.dim() > 1)
    assert not any(g.flatten()[len(g.flatten()) // MEMBERS :].any() for g in grads)


class _Weighing(torch.nn.Module):
    """No `FrameScores`, so that the loss is that of plain CTC and nothing is counted."""

    def __init__(self, frames: torch.nn.Module):
        super().__init__()


def test_the_shares_of_symbols_are_counted_over_all_members():
    model = _model(MEMBERS).train()
    scores, lengths = model(*_given())
    frame_loss(model.frames, scores, lengths, [[1, 2], [3]])
    real = torch.arange(scores.shape[1]) < lengths[:, None]
    torch.testing.assert_close(model.frames.shares, scores[real].softmax(-1).mean(0))


def test_copies_are_compared_within_a_member():
    torch.manual_seed(3)
    scores = torch.randn(MEMBERS * 2, 4, SYMBOLS)
    lengths = torch.tensor([4, 4] * MEMBERS)
    alone = [disagreement(scores[2 * m : 2 * m + 2], lengths[:2]) for m in range(MEMBERS)]
    torch.testing.assert_close(disagreement(scores, lengths), torch.stack(alone).sum())


def test_an_empty_batch_has_no_loss():
    model = _model(MEMBERS).train()
    scores, lengths = torch.zeros(0, 3, SYMBOLS), torch.zeros(0, dtype=torch.int64)
    assert float(frame_loss(_Weighing(model.frames), scores, lengths, [])) == 0.0


def test_groups_must_fit():
    with pytest.raises(ValueError, match="4 inputs and 6 outputs cannot be cut into 4 groups"):
        Convolution(4, 6, 3, groups=4)
