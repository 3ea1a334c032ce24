"""Words as language models of characters see them: the states at the ends of words in a line."""

from __future__ import annotations

import pytest
import torch

import anaphora as an
from anaphora.data.symbols import BOS, PAD, UNK
from anaphora.models.pretrained.contextual import CharacterReader, as_line
from anaphora.nn import Recurrent
from anaphora.nn.embedding import Embedding

SPACE = 5
LETTERS = torch.tensor(
    [
        [[7, 8, 9], [6, PAD, PAD], [8, 7, PAD]],
        [[9, 9, PAD], [PAD, PAD, PAD], [PAD, PAD, PAD]],
    ]
)
LENGTHS = torch.tensor([3, 1])


def test_words_become_a_line_with_spaces_between():
    line = as_line(LETTERS, LENGTHS, SPACE)
    assert line.text.tolist() == [[7, 8, 9, SPACE, 6, SPACE, 8, 7], [9, 9, *[PAD] * 6]]
    assert line.lengths.tolist() == [8, 2]
    assert line.first[0].tolist() == [0, 4, 6]
    assert line.last[0].tolist() == [2, 4, 7]
    assert line.last[1, 0] == 1


def test_no_word_or_a_word_without_letters_is_no_line():
    empty = as_line(LETTERS[:, :0], torch.tensor([0, 0]), SPACE)
    assert empty.text.shape == (2, 0)
    silent = as_line(torch.full((1, 2, 3), PAD), torch.tensor([2]), SPACE)  # two words, one space
    assert silent.text.tolist() == [[SPACE]]
    assert silent.last.tolist() == [[0, 0]]


def reader(backward: bool) -> CharacterReader:
    torch.manual_seed(0)
    made = CharacterReader(
        Embedding(12, 4),
        Recurrent(an.nn.LSTM(4, 6), layers=2),
        begin=BOS,
        space=SPACE,
        letters=12,
        backward=backward,
    )
    made.table.copy_(torch.arange(12))
    return made.eval()


@pytest.mark.parametrize("backward", [False, True])
def test_a_word_has_the_state_after_its_last_character(backward):
    """Backward, after its first: read from the end of the sentence."""
    made = reader(backward)
    words = torch.cat((torch.full((2, 3, 1), UNK), LETTERS), 2)
    words[1, 1:] = PAD
    low, high = made(words, LENGTHS)
    text = [7, 8, 9, SPACE, 6, SPACE, 8, 7]
    read = text[::-1][:4] if backward else text[:5]  # up to the second word, whose only letter is 6
    state = made.recurrent.initial_state(1, made.embedding.weight)
    for symbol in (BOS, *read):
        y, state = made.recurrent.step(made.embedding(torch.tensor([symbol])), state)
    torch.testing.assert_close(high[0, 1], y[0])
    torch.testing.assert_close(low[0, 1], state[0][0, 0])
    assert not high[1, 1:].any()
    alone = made(words[1:, :1], LENGTHS[1:])[1]
    torch.testing.assert_close(alone[0], high[1, :1])  # whatever else is in the batch
