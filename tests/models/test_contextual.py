"""Vectors in context: what every layer of frozen language models makes of a word, mixed as a task learns."""

from __future__ import annotations

import pytest
import torch

import anaphora as an
from anaphora.data.symbols import BOS, PAD
from anaphora.models.pretrained.contextual import ContextReader, ContextualWords, Mixture
from anaphora.nn import Recurrent
from anaphora.nn.embedding import Embedding


def reader(backward=False, seed=0):
    torch.manual_seed(seed)
    return ContextReader(
        Embedding(9, 4), Recurrent(an.nn.LSTM(4, 5), layers=2), begin=BOS, backward=backward
    ).eval()


WORDS = torch.tensor([[4, 5, 6, 7], [8, 4, PAD, PAD]])
LENGTHS = torch.tensor([4, 2])


def test_states_are_those_after_each_word_is_read():
    forward = reader()
    low, high = forward(WORDS, LENGTHS)
    state = forward.recurrent.initial_state(1, forward.embedding.weight)
    for symbol in (BOS, 4, 5):
        y, state = forward.recurrent.step(forward.embedding(torch.tensor([symbol])), state)
    torch.testing.assert_close(high[0, 1], y[0])
    torch.testing.assert_close(low[0, 1], state[0][0, 0])


def test_backward_is_the_sentence_turned_round():
    back = reader(backward=True)
    turned = torch.tensor([[7, 6, 5, 4], [4, 8, PAD, PAD]])
    plain = reader()
    for mine, other in zip(back(WORDS, LENGTHS), plain(turned, LENGTHS), strict=True):
        torch.testing.assert_close(mine[0], other[0].flip(0))
        torch.testing.assert_close(mine[1, :2], other[1, :2].flip(0))


def test_each_layer_ends_with_the_layers_output():
    torch.manual_seed(1)
    layers = Recurrent(an.nn.GRU(3, 4), layers=3, bidirectional=True)
    x, lengths = torch.randn(2, 6, 3), torch.tensor([6, 3])
    outputs = layers.each_layer(x, lengths)
    assert len(outputs) == 3
    torch.testing.assert_close(outputs[-1], layers(x, lengths)[0])


def test_a_mixture_begins_as_the_mean_and_learns_its_shares():
    mix = Mixture(2)
    layers = [torch.ones(1, 1, 3), 3 * torch.ones(1, 1, 3)]
    torch.testing.assert_close(mix(layers), 2 * torch.ones(1, 1, 3))
    mix(layers).sum().backward()
    assert mix.scores.grad[1] > 0 > mix.scores.grad[0]
    assert mix.scale.grad == 6


def test_language_models_stay_as_they_are():
    words = ContextualWords(Embedding(9, 3), [reader(), reader(backward=True, seed=1)])
    out = words(WORDS)
    assert out.shape == (2, 4, 3 + 5 + 5)
    assert words.width == 13
    out.sum().backward()
    trained = {name for name, p in words.named_parameters() if p.grad is not None}
    assert trained == {
        "own.weight",
        *(f"mixtures.{i}.{name}" for i in (0, 1) for name in ("scores", "scale")),
    }


def test_what_follows_a_short_sentence_does_not_matter():
    words = ContextualWords(Embedding(9, 3), [reader(), reader(backward=True, seed=1)]).eval()
    alone = words(WORDS[1:, :2])
    torch.testing.assert_close(words(WORDS)[1, :2], alone[0])


@pytest.mark.parametrize("width", [4, 7])
@pytest.mark.parametrize("backward", [False, True])
def test_the_lowest_layer_is_the_vectors_of_the_words(width, backward):
    torch.manual_seed(2)
    words = ContextReader(
        Embedding(9, width), Recurrent(an.nn.GRU(width, 5)), begin=BOS, backward=backward, tokens=True
    ).eval()
    lowest, above = words(WORDS, LENGTHS)
    assert lowest.shape == above.shape == (2, 4, max(width, 5))
    torch.testing.assert_close(lowest[0, :, :width], words.embedding(WORDS)[0])
    assert not lowest[1, 2:].any()  # zero past the end
    assert not lowest[..., width:].any()
    assert not above[..., 5:].any()
    words.tokens = False
    torch.testing.assert_close(above[..., :5], words(WORDS, LENGTHS)[0][..., :5])
