"""Poolings worked by hand, bags that know no order, windows by brute force, and one score for two classes."""

from __future__ import annotations

import pytest
import torch

from anaphora.models.classifier import (
    BagEncoder,
    ConvolutionEncoder,
    SequenceClassifier,
    VectorInput,
    without_last,
)
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.memory import Memory
from anaphora.models.pooling import AttentionPooling, Concatenated, LastState, Maximum, Mean
from anaphora.nn import LSTM, Elman, Recurrent
from anaphora.nn.embedding import Embedding, OneHot

STATES = torch.tensor([[[1.0, -5.0], [3.0, -1.0], [100.0, 100.0]], [[2.0, 4.0], [-2.0, 8.0], [6.0, 0.0]]])
MEMORY = Memory(STATES, torch.tensor([[True, True, False], [True, True, True]]))


def test_pooling_by_hand():
    torch.testing.assert_close(Mean()(MEMORY), torch.tensor([[2.0, -3.0], [2.0, 4.0]]))
    torch.testing.assert_close(Maximum()(MEMORY), torch.tensor([[3.0, -1.0], [6.0, 8.0]]))
    torch.testing.assert_close(LastState()(MEMORY), torch.tensor([[3.0, -1.0], [6.0, 0.0]]))
    together = torch.tensor([[3.0, -1.0, 3.0, -1.0, 2.0, -3.0], [6.0, 0.0, 6.0, 8.0, 2.0, 4.0]])
    torch.testing.assert_close(Concatenated()(MEMORY), together)


def test_the_end_symbol_can_be_left_out():
    source, lengths = torch.tensor([[5, 6, 3], [7, 3, 0], [3, 0, 0]]), torch.tensor([3, 2, 1])
    kept, counted = without_last(source, lengths)
    assert kept.tolist() == [[5, 6], [7, 0], [0, 0]]
    assert counted.tolist() == [2, 1, 1]  # what was empty is one <pad>


def test_attention_pooling_is_a_weighted_mean_of_real_places():
    pooling = AttentionPooling(2)
    with torch.no_grad():
        pooling.W.weight.copy_(torch.eye(2))
        pooling.W.bias.zero_()
        pooling.v.weight.copy_(torch.tensor([[2.0, 0.0]]))  # score = 2 tanh(first unit)
    scores = 2 * torch.tanh(torch.tensor([1.0, 3.0]))
    alpha = torch.softmax(scores, 0)
    expected = alpha[0] * STATES[0, 0] + alpha[1] * STATES[0, 1]
    torch.testing.assert_close(pooling(MEMORY)[0], expected)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_last_state_is_that_at_each_rows_own_end(bidirectional):
    recurrent = Recurrent(LSTM(3, 4), layers=2, bidirectional=bidirectional)
    encoder = RecurrentEncoder(VectorInput(3), recurrent)
    x, lengths = torch.randn(2, 5, 3), torch.tensor([5, 2])
    found = LastState()(encoder(x, lengths))
    y, _ = recurrent(x[1:, :2])
    forward, backward = y[0, -1, :4], y[0, 0, 4:]
    torch.testing.assert_close(found[1], torch.cat((forward, backward)))


def test_a_bag_scores_every_order_alike_and_a_recurrent_network_does_not():
    market, bear = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[8, 6, 7, 5, 9]])
    lengths = torch.tensor([5])
    bag = SequenceClassifier(BagEncoder(Embedding(10, 8), width=8), Mean(), width=8, outputs=3)
    torch.testing.assert_close(bag(market, lengths), bag(bear, lengths))
    recurrent = Recurrent(Elman(8, 8))
    reader = SequenceClassifier(
        RecurrentEncoder(Embedding(10, 8, scaled=True), recurrent), LastState(), width=8, outputs=3
    )
    assert (reader(market, lengths) - reader(bear, lengths)).abs().max() > 1e-2


def test_looking_up_a_vector_is_the_product_with_a_unit_vector():
    """W·onehot(i) is column i of W: both bags hold the same numbers, exactly."""
    embedding = Embedding(10, 6)
    product = torch.nn.Linear(10, 6, bias=False)
    product.weight.data = embedding.weight.data.T.clone()
    symbols, lengths = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([5])
    looked_up = BagEncoder(embedding, width=6)(symbols, lengths)
    multiplied = BagEncoder(torch.nn.Sequential(OneHot(10), product), width=6)(symbols, lengths)
    assert torch.equal(looked_up.annotations, multiplied.annotations)
    torch.testing.assert_close(Mean()(looked_up)[0], embedding.weight[symbols[0]].mean(0))


def test_one_score_stands_for_two_classes():
    model = SequenceClassifier(BagEncoder(Embedding(10, 6), width=6), Mean(), width=6, outputs=2, binary=True)
    symbols, lengths = torch.tensor([[3, 1, 4]]), torch.tensor([3])
    scores = model(symbols, lengths)
    z = model.output(Mean()(model.encoder(symbols, lengths)))
    assert scores.shape == (1, 2)
    torch.testing.assert_close(torch.softmax(scores, -1)[:, 1:], torch.sigmoid(z))
    expected = torch.nn.functional.binary_cross_entropy_with_logits(z, torch.ones(1, 1))
    torch.testing.assert_close(torch.nn.functional.cross_entropy(scores, torch.tensor([1])), expected)


def test_windows_of_several_widths_by_brute_force():
    encoder = ConvolutionEncoder(VectorInput(2), 2, 3, [1, 2])
    x = torch.randn(1, 4, 2)
    found = encoder(x, torch.tensor([3])).annotations[0, :3]
    for place in range(3):
        expected = []
        for window in encoder.windows:
            total = window.bias.clone()
            for back in range(window.kernel):
                if place - back >= 0:
                    total = total + window.weight[:, :, window.kernel - 1 - back] @ x[0, place - back]
            expected.append(torch.relu(total))
        torch.testing.assert_close(found[place], torch.cat(expected))
