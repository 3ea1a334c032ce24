"""Words as a language model of characters sees them in their sentence (Akbik et al. 2018)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.data.symbols import PAD, UNK
from anaphora.models.pretrained.contextual import ContextReader
from anaphora.nn.embedding import Embedding
from anaphora.nn.recurrent import Recurrent


class Line(NamedTuple):
    """Sentences as lines of characters, and where their words stand in them."""

    text: Tensor
    """(rows, longest)"""
    lengths: Tensor
    """(rows,)"""
    first: Tensor
    """(rows, words): the place of each word's first character"""
    last: Tensor
    """(rows, words): the place of its last"""


def as_line(letters: Tensor, lengths: Tensor, space: int) -> Line:
    """Words ``(rows, words, letters)``, PAD past the end of each, of which ``lengths`` ``(rows,)`` are real, with a ``space``
    between two of them.

    >>> as_line(torch.tensor([[[7, 8], [9, 0]]]), torch.tensor([2]), 5).text
    tensor([[7, 8, 5, 9]])
    """
    rows, words, most = letters.shape
    real = torch.arange(words, device=letters.device) < lengths[:, None]  # (rows, words)
    sizes = (letters != PAD).sum(-1) * real
    steps = (sizes + 1) * real
    first = steps.cumsum(1) - steps
    wholes = (steps.sum(1) - 1).clamp(min=0)
    longest = int(wholes.max()) if rows else 0
    text = letters.new_full((rows, longest + 1), PAD)  # the last place takes what belongs nowhere
    places = first.unsqueeze(-1) + torch.arange(most, device=letters.device)
    places = places.masked_fill((letters == PAD) | ~real.unsqueeze(-1), longest)
    text.scatter_(1, places.flatten(1), letters.flatten(1))
    between = (first + sizes).masked_fill(~real, longest).clamp(max=longest)
    text.scatter_(1, between, torch.full_like(between, space))
    last = (first + sizes - 1).clamp(min=0)
    inside = torch.arange(longest, device=letters.device) < wholes[:, None]
    return Line(text[:, :longest].masked_fill(~inside, PAD), wholes, first, last)


class CharacterReader(ContextReader):
    """The body of a language model of characters, kept as it is: words with their letters ``(batch, time, 1 + letters)`` to
    the states of each of its layers, ``(batch, time, width)``.

    The state of a word is that after its last character; with ``backward``, which reads the sentence from its end, that after
    its first. ``table`` has the symbol of the language model for each number of a letter.
    """

    spelled = True
    table: Tensor

    def __init__(
        self,
        embedding: Embedding,
        recurrent: Recurrent,
        *,
        begin: int,
        space: int,
        letters: int,
        backward: bool = False,
    ):
        super().__init__(embedding, recurrent, begin=begin, backward=backward)
        self.space = space
        self.register_buffer("table", torch.full((letters,), UNK))

    @torch.no_grad()
    def forward(self, words: Tensor, lengths: Tensor) -> list[Tensor]:
        line = as_line(self.table[words[..., 1:]], lengths, self.space)
        states = super().forward(line.text, line.lengths)
        at = (line.first if self.backward else line.last).clamp(max=max(0, line.text.shape[1] - 1))
        real = (torch.arange(words.shape[1], device=words.device) < lengths[:, None]).unsqueeze(-1)
        return [state.gather(1, at.unsqueeze(-1).expand(-1, -1, state.shape[-1])) * real for state in states]
