"""Front ends leave fewer frames, convolutions see so far and no further, and no row knows of another."""

from __future__ import annotations

import pytest
import torch

from anaphora.models.classifier import VectorInput
from anaphora.models.ctc import CTCModel, FrameScores, log_probabilities
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.listener import ConvolutionListener, Differences, Listener, Stacking, Subsampling
from anaphora.nn import LSTM, Recurrent


def test_stacking_puts_neighbours_side_by_side_and_zeros_past_the_end():
    x = torch.tensor([[[1.0], [2.0], [3.0], [9.0]], [[4.0], [9.0], [9.0], [9.0]]])
    y, lengths = Stacking(1, 2)(x, torch.tensor([3, 1]))
    assert y.tolist() == [[[1, 2], [3, 0]], [[4, 0], [0, 0]]]
    assert lengths.tolist() == [2, 1]


def test_differences_are_the_slopes_of_five_frames_by_hand():
    x = torch.tensor([[[0.0], [1.0], [2.0], [3.0], [4.0]]])
    y, lengths = Differences(Stacking(3, 1), 2)(x, torch.tensor([5]))
    # (2·(x₂ − x₀) + x₁ − x₀) / 10 = ½ at the first frame, whose left neighbours are itself; 1 in the middle
    slopes = [0.5, 0.8, 1.0, 0.8, 0.5]
    # likewise of the slopes: (2·(1 − ½) + 0.8 − ½) / 10 = 0.13, and nothing in the middle, where they are even
    curves = [0.13, 0.11, 0.0, -0.11, -0.13]
    assert y[0, :, 0].tolist() == [0, 1, 2, 3, 4]
    torch.testing.assert_close(y[0, :, 1], 3 * torch.tensor(slopes))
    torch.testing.assert_close(y[0, :, 2], 6 * torch.tensor(curves))
    assert lengths.tolist() == [5]


def test_subsampling_by_hand():
    front = Subsampling(1, 1, 2)
    with torch.no_grad():
        front.layers[0].weight.copy_(torch.tensor([[[1.0, 10.0, 100.0]]]))
        front.layers[0].bias.fill_(0.5)
    y, lengths = front(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([3]))
    # 10·x₀ + 100·x₁ + ½ and x₁ + 10·x₂ + ½
    assert y.flatten().tolist() == [210.5, 32.5]
    assert lengths.tolist() == [2]


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", [Stacking, Subsampling, Differences])
def test_padding_is_never_seen_and_frames_are_counted(kind, factor):
    torch.manual_seed(factor)
    if kind is Differences:
        front = Differences(Stacking(9, factor), 2)
    else:
        front = kind(3, factor) if kind is Stacking else kind(3, 5, factor)
    for length in (1, 2, 5, 8, 9):
        x = torch.randn(1, length, 3)
        alone, count = front(x, torch.tensor([length]))
        assert alone.shape == (1, -(-length // factor), front.width)
        assert count.tolist() == [-(-length // factor)]
        longer = torch.cat((x, torch.full((1, 7, 3), 99.0)), 1)
        padded, again = front(longer, torch.tensor([length]))
        assert again.tolist() == count.tolist()
        torch.testing.assert_close(padded[:, : alone.shape[1]], alone)


def test_subsampling_halves_and_refuses_what_it_cannot():
    with pytest.raises(ValueError, match="not 3"):
        Subsampling(3, 4, 3)


def test_a_convolution_listener_sees_its_reach_and_no_further():
    torch.manual_seed(0)
    listener = ConvolutionListener(32, 3, 4).eval()
    assert listener.reach == 1 + 2 + 4 + 1
    x = torch.randn(1, 40, 32)
    changed = x.clone()
    changed[0, 20, 0] += 1.0
    lengths = torch.tensor([40])
    differs = (listener(x, lengths).annotations != listener(changed, lengths).annotations)[0].any(-1)
    seen = differs.nonzero().flatten()
    assert seen.min() == 20 - listener.reach
    assert seen.max() == 20 + listener.reach


def test_a_row_of_a_ctc_model_does_not_depend_on_the_others():
    torch.manual_seed(0)
    body = RecurrentEncoder(VectorInput(6), Recurrent(LSTM(6, 5), bidirectional=True))
    model = CTCModel(Listener(Stacking(3, 2), body), FrameScores(10, 7)).eval()
    x = torch.randn(3, 11, 3)
    lengths = torch.tensor([11, 4, 7])
    scores, frames = model(x, lengths)
    assert scores.shape == (3, 6, 7)
    assert frames.tolist() == [6, 2, 4]
    for row, length in enumerate(lengths.tolist()):
        alone, count = model(x[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(alone[0], scores[row, : count[0]])
    torch.testing.assert_close(log_probabilities(scores).exp().sum(-1), torch.ones(3, 6))


def test_a_margin_is_left_out_at_both_ends_of_every_row():
    torch.manual_seed(3)
    body = ConvolutionListener(2, 3, 1).eval()
    plain, cut = Listener(Stacking(1, 2), body), Listener(Stacking(1, 2), body, margin=2)
    x, lengths = torch.randn(2, 14, 1), torch.tensor([14, 11])
    whole, found = plain(x, lengths), cut(x, lengths)
    torch.testing.assert_close(found.annotations, whole.annotations[:, 2:5])
    assert found.mask.tolist() == [[True, True, True], [True, True, False]]
    assert cut.places(14) == 3
    assert cut.places(11) == 2
