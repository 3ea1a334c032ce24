"""The tagger's parts: spellings read beside words, and decoding that keeps to rules."""

from __future__ import annotations

import itertools

import pytest
import torch

from anaphora.data.symbols import PAD
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.tagger import ConvolvedSpelling, RecurrentSpelling, SpelledWords, Tagger
from anaphora.nn import CRF, LSTM, Recurrent
from anaphora.nn.convolution import Convolution
from anaphora.nn.embedding import Embedding, Output

FREE = (torch.ones(3, dtype=torch.bool), torch.ones(3, 3, dtype=torch.bool), torch.ones(3, dtype=torch.bool))


def spelling(kind):
    torch.manual_seed(0)
    if kind == "lstm":
        return RecurrentSpelling(Embedding(9, 4), Recurrent(LSTM(4, 5), bidirectional=True))
    return ConvolvedSpelling(Embedding(9, 4), Convolution(4, 10, 3))


@pytest.mark.parametrize("kind", ["lstm", "conv"])
def test_a_word_is_its_vector_and_its_spelling(kind):
    words = SpelledWords(7, 6, spelling(kind))
    batch = torch.tensor([[[4, 5, 6, 7], [5, 8, PAD, PAD]], [[4, 5, 6, 7], [PAD, PAD, PAD, PAD]]])
    found = words(batch)
    assert found.shape == (2, 2, 16)
    assert words.width == 16
    torch.testing.assert_close(found[0, 1, :6], words.weight[5] * 6**0.5)
    torch.testing.assert_close(found[0, 0], found[1, 0])  # the same word wherever it stands
    alone = words(torch.tensor([[[5, 8]]]))[0, 0]  # without padding
    torch.testing.assert_close(found[0, 1], alone)


def test_the_recurrent_spelling_ends_at_the_words_own_ends():
    read = spelling("lstm")
    states, _ = read.recurrent(read.embedding(torch.tensor([[5, 6, 7]])))
    expected = torch.cat((states[:, -1, :5], states[:, 0, 5:]), -1)  # last of →, first of ←
    torch.testing.assert_close(read(torch.tensor([[5, 6, 7, PAD]])), expected)


def tagger(crf, rules=FREE):
    torch.manual_seed(1)
    encoder = RecurrentEncoder(Embedding(9, 4), Recurrent(LSTM(4, 5), bidirectional=True))
    return Tagger(encoder, Output(10, 3), rules=rules, crf=CRF(3) if crf else None).eval()


@pytest.mark.parametrize("crf", [False, True])
def test_loss_decoding_and_marginals_are_those_of_all_paths(crf):
    start, moves, end = FREE[0].clone(), FREE[1].clone(), FREE[2].clone()
    start[2] = moves[0, 1] = end[0] = False
    model = tagger(crf, (start, moves, end))
    source, lengths = torch.tensor([[4, 5, 6, 7], [8, 4, 0, 0]]), torch.tensor([4, 2])
    emissions = model(source, lengths)

    def score(row, path):
        total = sum(emissions[row, t, y] for t, y in enumerate(path))
        if model.crf is not None:
            total = total + model.crf.start[path[0]] + model.crf.end[path[-1]]
            total = total + sum(model.crf.transitions[a, b] for a, b in itertools.pairwise(path))
        return float(total.detach())

    for row, length in enumerate(lengths.tolist()):
        paths = list(itertools.product(range(3), repeat=length))
        fine = [
            p
            for p in paths
            if start[p[0]] and end[p[-1]] and all(moves[a, b] for a, b in itertools.pairwise(p))
        ]
        best = max(fine, key=lambda path: score(row, path))
        assert model.decode(emissions, lengths)[row, :length].tolist() == list(best)
        scores = torch.tensor([score(row, path) for path in paths])
        chances = (scores - scores.logsumexp(0)).exp()
        marginal = model.marginals(emissions, lengths)[row, 1]
        expected = torch.stack([chances[[p[1] == y for p in paths]].sum() for y in range(3)])
        torch.testing.assert_close(marginal, expected, atol=1e-5, rtol=0)
        loss = model.loss(
            emissions[row : row + 1], torch.tensor([best + (0,) * (4 - length)]), lengths[row : row + 1]
        )
        assert float(loss.detach()) == pytest.approx(-float(chances[paths.index(best)].log()), abs=1e-4)


def test_rules_are_no_weights():
    assert not any("rule" in name for name in tagger(crf=True).state_dict())
